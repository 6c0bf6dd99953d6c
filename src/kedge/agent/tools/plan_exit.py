"""The tool `plan_exit`: asks whether the plan is to be carried out, and hands over to `build`."""

from kedge.agent.permissions import PermissionRejected
from kedge.agent.tools.call import Call
from kedge.agent.tools.tool import Output, ToolFailure, tool
from kedge.domain.agents import BUILD
from kedge.domain.conversation import PromptState
from kedge.domain.questions import QuestionInfo, QuestionOption
from kedge.engine.prompts import Prompt

NAME = "plan_exit"
_YES, _NO = "Yes", "No"
_QUESTION = QuestionInfo(
    question="The plan is complete. Shall the build agent carry it out now?",
    header="Build Agent",
    options=[
        QuestionOption(label=_YES, description="Switch to the build agent, which changes files"),
        QuestionOption(label=_NO, description="Stay with the plan, to go on with it"),
    ],
    custom=False,
)
APPROVED = (
    "The plan above is approved, and you are not in plan mode any more: you may change files and"
    " run commands as your permissions allow. Carry the plan out."
)


class PlanNotApproved(PermissionRejected):
    """The person wants to go on with the plan, and the turn ends."""


@tool(
    NAME,
    description="""
    Asks the person whether the plan is to be carried out, and hands over to the build agent if so.

    - Call it when the plan is complete and you have written it in your answer: the person decides
      by what they have read, and the build agent works by it.
    - Do not call it while something is open that the person has to decide: ask that first. Do not
      call it for questions about the code, which need no plan.
    """,
)
async def plan_exit(call: Call) -> Output:
    turn = call.step.turn
    if await call.question([_QUESTION]) != [[_YES]]:
        raise PlanNotApproved("The user wants to go on with the plan")
    told = {"type": "text", "text": APPROVED, "synthetic": True}
    prompt = Prompt(
        call.engine,
        call.session.id,
        [told],
        agent=BUILD,
        model=turn.model,
        message_id=None,
    )
    # The turn takes it up after this step, as any prompt that comes while it runs.
    if not await prompt.queue(PromptState.WAITING):
        raise ToolFailure("The turn is over. Ask the person to switch to the build agent.")
    return Output(
        "The person approved the plan. The build agent carries it out from here on: say no more.",
        title="Switching to build agent",
    )
