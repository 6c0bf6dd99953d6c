"""The todo list, and questions to people."""

import msgspec
import pytest

from kedge.agent.tools.question import question
from kedge.agent.tools.todowrite import todowrite
from kedge.agent.tools.tool import ToolFailure
from kedge.domain.questions import QuestionInfo, QuestionOption
from kedge.domain.sessions import Todo
from tests.agent.tools.scene import Rejected, Scene

ITEMS = [
    {"content": "plan it", "status": "completed", "priority": "high"},
    {"content": "build it", "status": "in_progress", "priority": "medium"},
    {"content": "test it", "status": "pending"},
]
COLOUR = {
    "question": "Which colour?",
    "header": "Choice",
    "options": [{"label": "Red", "description": "Like a rose"}, {"label": "Blue"}],
}


async def test_todos(scene: Scene) -> None:
    """The session's list is replaced; the title counts what is left to do."""
    output = await scene.run(todowrite, todos=ITEMS)
    assert output.title == "2 todos"
    listed = [*ITEMS[:2], ITEMS[2] | {"priority": "medium"}]
    assert output.metadata == {"todos": listed, "truncated": False}
    assert output.text.startswith('[\n  {\n    "content": "plan it",\n    "status": "completed"')
    assert await scene.session.todos() == msgspec.convert(listed, list[Todo])
    assert scene.person.permissions == ["todowrite"]


async def test_rejected_todos(scene: Scene) -> None:
    """The list stays as it was."""
    scene.person.rejects.add("todowrite")
    with pytest.raises(Rejected):
        await scene.run(todowrite, todos=ITEMS)
    assert await scene.session.todos() == []


@pytest.mark.parametrize(
    "todos", [None, "x", [{"content": "a", "status": "done"}], [{"status": "pending"}], [1]]
)
async def test_wrong_todos(scene: Scene, todos: object) -> None:
    """The model hears what is wrong with them."""
    with pytest.raises(ToolFailure, match="arguments of todowrite are wrong"):
        await scene.run(todowrite, todos=todos)


async def test_a_question(scene: Scene) -> None:
    """Each answer is told beside its question."""
    scene.person.answers = [["Red"], []]
    output = await scene.run(question, questions=[COLOUR, COLOUR | {"question": "And?"}])
    assert output.text == (
        'The person answered: "Which colour?" = "Red"; "And?" = no answer. Go on with that in mind.'
    )
    assert output.title == "Asked 2 questions"
    assert output.metadata == {"answers": [["Red"], []], "truncated": False}
    assert scene.person.questions[0] == QuestionInfo(
        question="Which colour?",
        header="Choice",
        options=[
            QuestionOption(label="Red", description="Like a rose"),
            QuestionOption(label="Blue"),
        ],
    )


async def test_no_question(scene: Scene) -> None:
    """There is nothing to wait for."""
    with pytest.raises(ToolFailure, match="Ask at least one"):
        await scene.run(question, questions=[])
