"""Pages of the web in a whole turn: with the rules of configurations, sessions and agents."""

import pytest

from kedge.domain.permissions import PermissionRule
from tests.agent.web.sites import answer, redirect, site
from tests.agent.world import Scene, World, error_of, text_of, tools_of

PAGES = {
    "/": answer("<h1>Title</h1>"),
    "/to-secret": redirect("/secret"),
    "/secret": answer("secret"),
    "/to-metadata": redirect("http://169.254.169.254/latest/meta-data/"),
}


async def refusal(scene: Scene, url: str) -> str:
    """Why the offline model does not get a page."""
    await scene.prompt(f"webfetch {url}", model="kedge/offline")
    return error_of(tools_of((await scene.answers())[-2])[0])


@pytest.mark.parametrize("agent", ["build", "plan"])
async def test_a_page_of_a_server_that_the_configuration_names(world: World, agent: str) -> None:
    """The offline model reads it, without a question, and also as the agent that only looks."""
    async with site(PAGES) as served:
        world.configure(permission={"webfetch": {"http://127.0.0.1:*": "allow"}})
        async with world.at_work() as scene:
            told = await scene.prompt(
                f"webfetch {served.url()}\nshow", model="kedge/offline", agent=agent
            )
            assert text_of(told) == "# Title"
            metadata = "169.254.169.254 is an address of this machine or of a private network"
            assert metadata in await refusal(scene, served.url("/to-metadata"))


async def test_everything_allowed_is_not_this_machine(world: World) -> None:
    """By default, by a rule for everything, or by one of a project that is not trusted."""
    async with site(PAGES) as served:
        for said in ({}, {"permission": "allow"}, {"permission": {"webfetch": "allow"}}):
            world.configure(**said)
            rule = f'{{"permission": {{"webfetch": {{"{served.url("/*")}": "allow"}}}}}}'
            world.put("opencode.json", rule)
            async with world.at_work() as scene:
                assert "permission rule" in await refusal(scene, served.url())
        assert served.asked == []


async def test_rules_of_the_session_and_denials_hold(world: World) -> None:
    """A program can allow a server for one session; a redirect leads to no page that is denied."""
    async with site(PAGES) as served:
        world.configure(permission={"webfetch": {"*/secret": "deny"}})
        async with world.at_work() as scene:
            rules = [
                PermissionRule(permission="webfetch", pattern=served.url("/*"), action="allow"),
                PermissionRule(permission="webfetch", pattern="*/secret", action="deny"),
            ]
            await scene.session.update(permission=rules)
            assert "a rule denies webfetch" in await refusal(scene, served.url("/to-secret"))
            assert "a rule denies webfetch" in await refusal(scene, served.url("/secret"))
            assert served.paths == ["/to-secret"]
