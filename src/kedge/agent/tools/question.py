"""The tool `question`: something that only a person can answer."""

from typing import Annotated

import msgspec

from kedge.agent.tools.call import Call
from kedge.agent.tools.tool import Output, ToolFailure, tool
from kedge.domain.questions import QuestionInfo, QuestionOption


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One answer to choose."""

    label: Annotated[str, msgspec.Meta(description="The answer, in one to five words")]
    description: Annotated[str | None, msgspec.Meta(description="What it would mean")] = None


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One question with answers to choose from."""

    question: Annotated[str, msgspec.Meta(description="The whole question")]
    header: Annotated[str, msgspec.Meta(description="What it is about, in a word or two")]
    options: list[Option]
    multiple: Annotated[
        bool | None, msgspec.Meta(description="Whether several answers can be chosen")
    ] = None


@tool(
    "question",
    description="""
    Asks the person who works with you, and waits for the answers.

    Use it where you cannot decide yourself: what they want, or which of several ways. They can
    always type an answer of their own, so do not offer one like "other". If you would choose one of
    the answers, put it first and say so in its label.
    """,
)
async def question(call: Call, questions: Annotated[list[Question], "What to ask"]) -> Output:
    if not questions:
        raise ToolFailure("There is no question. Ask at least one.")
    answers = await call.question([_asked(each) for each in questions])
    told = [
        f'"{each.question}" = {_answer(given)}'
        for each, given in zip(questions, answers, strict=True)
    ]
    count = len(questions)
    return Output(
        "The person answered: " + "; ".join(told) + ". Go on with that in mind.",
        title=f"Asked {count} question" + "s" * (count != 1),
        metadata={"answers": answers, "truncated": False},
    )


def _asked(question: Question) -> QuestionInfo:
    return QuestionInfo(
        question=question.question,
        header=question.header,
        options=[
            QuestionOption(label=option.label, description=option.description)
            for option in question.options
        ],
        multiple=question.multiple,
    )


def _answer(given: list[str]) -> str:
    return ", ".join(f'"{each}"' for each in given) or "no answer"
