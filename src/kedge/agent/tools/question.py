"""The tool `question`: asks what only the user can answer."""

from typing import Annotated

import msgspec

from kedge.agent.tools.call import Call
from kedge.agent.tools.tool import Output, ToolFailure, tool
from kedge.domain.questions import QuestionInfo, QuestionOption


class OptionInput(msgspec.Struct, frozen=True, kw_only=True):
    """One answer to choose."""

    label: Annotated[str, msgspec.Meta(description="The answer, in one to five words")]
    description: Annotated[
        str | None, msgspec.Meta(description="What it would mean to choose it")
    ] = None


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One question with answers to choose from."""

    question: Annotated[
        str,
        msgspec.Meta(
            description="The whole question, so that it can be answered without looking elsewhere"
        ),
    ]
    header: Annotated[str, msgspec.Meta(description="What it is about, in a word or two")]
    options: Annotated[list[OptionInput], msgspec.Meta(description="The answers to choose from")]
    multiple: Annotated[
        bool | None, msgspec.Meta(description="Whether several answers can be chosen")
    ] = None


@tool(
    "question",
    description="""
    Asks the person who works with you, and waits for the answers.

    - Use it when only they can decide: when the request can mean things that lead to different
      work, or when a choice is hard to take back.
    - Do not use it for what you can find out by reading, searching or running something, for
      choices that any sensible engineer would make alike, to ask whether to go on, or for
      permissions: the tools ask for those.
    - Ask all that you need to know in one call. Give each question two to four answers to choose
      from, each with what it would mean. They can always type an answer of their own, so do not
      offer one like "other". If you would choose one of the answers, put it first and add
      "(recommended)" to its label.
    """,
)
async def question(
    call: Call, questions: Annotated[list[Question], "What to ask, most important first"]
) -> Output:
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
