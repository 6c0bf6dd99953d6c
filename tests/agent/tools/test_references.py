"""References in a text that a model wrote, such as the prompt of a task."""

from kedge.agent.references import references_of_model
from kedge.agent.tools.call import Call
from tests.agent.tools.scene import Scene


async def test_a_model_attaches_what_it_may_read_unasked(scene: Scene) -> None:
    """Neither a secret nor what is outside of the worktree, which it has to ask for."""
    for name in ("a.txt", ".env", "../outside.txt"):
        (scene.folder / name).write_text("x")
    (scene.folder / "link").symlink_to("../outside.txt")
    scene.person.asks_for = {".env"}
    text = "Read @a.txt @.env @../outside.txt @link and tell @boss and @nobody."
    async with scene.step() as step, step.tool("task", {}) as running:
        call = Call(step, running, scene.person)
        found = await references_of_model(call, text, agents=["boss"])
    assert [part.get("filename", part.get("name")) for part in found] == ["a.txt", "boss"]
    assert scene.person.asked == []
