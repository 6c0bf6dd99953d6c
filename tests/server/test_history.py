"""What a session did, over HTTP: diffs, files as they were, tails, forks, and search."""

import base64
import os
from typing import Any
from urllib.parse import quote

import kedge
from tests.agent.world import World
from tests.server.world import Served, serve


class Talk:
    """A session in which every prompt is a command of the offline model."""

    def __init__(self, served: Served, id: str) -> None:
        self.served = served
        self.url = f"/session/{id}"
        self.prompts: list[str] = []

    async def say(self, command: str) -> str:
        """The id of a prompt that was answered."""
        body = {"parts": [{"type": "text", "text": command}]}
        answer = (await self.served.post(f"{self.url}/message", body)).json
        self.prompts.append(answer["info"]["parentID"])
        return self.prompts[-1]

    async def get(self, target: str) -> Any:  # noqa: ANN401 - any JSON
        """What the session answers."""
        reply = await self.served.get(self.url + target)
        assert reply.status == 200, reply
        return reply.json

    async def files(self, query: str = "") -> list[tuple[str, int, int]]:
        """The files of a diff, with their counts."""
        found = await self.get(f"/diff{query}")
        assert all(each["patch"].startswith(f"Index: {each['file']}\n") for each in found)
        return [(each["file"], each["additions"], each["deletions"]) for each in found]


async def talking(served: Served) -> Talk:
    """A new talk."""
    return Talk(served, (await served.post("/session", {"title": "talk"})).json["id"])


async def test_a_diff_is_of_a_session_a_message_or_a_stretch(served: Served) -> None:
    """Without a message it is the whole session's, where OpenCode answers nothing."""
    talk = await talking(served)
    assert await talk.files() == []
    first = await talk.say("write new.txt one")
    second = await talk.say("write other.txt two")
    third = await talk.say("write new.txt three")
    new, other = ("new.txt", 1, 0), ("other.txt", 1, 0)
    assert await talk.files() == [new, other]
    assert await talk.files(f"?messageID={first}") == [new]
    assert await talk.files(f"?messageID={third}") == [("new.txt", 1, 1)]
    assert await talk.files(f"?until={third}") == [new, other]
    assert await talk.files(f"?from={second}&until={third}") == [other]
    assert await talk.files("?messageID=msg_unknown") == []
    assert (await served.get("/session/ses_nope/diff")).json == []


async def test_diffs_that_make_no_sense_are_refused(served: Served) -> None:
    """With 400, and 404 for a stretch that ends at no message."""
    talk = await talking(served)
    first = await talk.say("say hello")
    second = await talk.say("say hello")
    for query in (
        "messageID=bad",
        "messageID=",
        f"from={first}",
        f"messageID={first}&until={second}",
        f"from={second}&until={first}",
        "until=bad",
    ):
        reply = await served.get(f"{talk.url}/diff?{query}")
        assert (reply.status, reply.json["name"]) == (400, "BadRequest"), query
    assert (await served.get(f"{talk.url}/diff?until=msg_unknown")).status == 404
    bad = await served.get(f"{talk.url}/diff?messageID=bad")
    assert bad.json["data"]["kind"] == "Query"


async def test_files_are_read_as_they_were(served: Served) -> None:
    """As of a message, in the form in which OpenCode sends files; the disk is not asked."""
    (served.world.folder / "raw.bin").write_bytes(b"\0\xff")
    talk = await talking(served)
    first = await talk.say("write new.txt one")
    second = await talk.say("write new.txt two")
    (served.world.folder / "new.txt").unlink()
    as_of = f"messageID={second}"
    names = [each["name"] for each in await talk.get(f"/tree?{as_of}")]
    assert names == ["a.txt", "b.txt", "new.txt", "raw.bin"]
    assert "new.txt" not in [each["name"] for each in await talk.get(f"/tree?messageID={first}")]
    found = await talk.get(f"/file?{as_of}&path=new.txt")
    assert found == {"type": "text", "content": "one\n"}
    coded = quote(base64.b64encode(b"raw.bin"))
    raw = await talk.get(f"/file?{as_of}&pathBase64={coded}")
    assert (raw["type"], raw["encoding"]) == ("binary", "base64")
    assert base64.b64decode(raw["content"]) == b"\0\xff"
    assert raw == await talk.get(f"/file?{as_of}&path=raw.bin")


async def test_files_that_cannot_be_read_say_why(served: Served) -> None:
    """No path leads out of the worktree, and what was not there is not found."""
    talk = await talking(served)
    as_of = f"messageID={await talk.say('write new.txt one')}"
    for target, status in (
        ("/file?path=a.txt", 400),
        ("/file?messageID=bad&path=a.txt", 400),
        ("/file?messageID=msg_unknown&path=a.txt", 404),
        (f"/file?{as_of}&path=none.txt", 404),
        (f"/file?{as_of}&path=", 400),
        (f"/file?{as_of}&path=%00", 400),
        (f"/file?{as_of}&pathBase64=!", 400),
        (f"/file?{as_of}&path=../../../../etc/passwd", 403),
        (f"/file?{as_of}&path=/etc/passwd", 403),
        (f"/tree?{as_of}&path=a.txt", 400),
        (f"/tree?{as_of}&path=..", 403),
    ):
        reply = await served.get(talk.url + target)
        assert reply.status == status, (target, reply)
        assert reply.json["data"]["message"]


async def test_the_past_of_a_worktree_ends_at_the_root(world: World) -> None:
    """A session knows what was in its whole worktree, but clients see what is theirs."""
    world.put("inside/c.txt", "c\n")
    inside = world.folder / "inside"
    async with serve(world, root=str(inside)) as served:
        place = {"x-opencode-directory": quote(str(inside))}
        made = await served.post("/session", {}, headers=place)
        talk = Talk(served, made.json["id"])
        as_of = f"messageID={await talk.say('write new.txt one')}"
        assert [each["name"] for each in await talk.get(f"/tree?{as_of}")] == ["c.txt"]
        above = quote(base64.b64encode(b"../a.txt"))
        for target in (
            f"/file?{as_of}&path=../a.txt",
            f"/file?{as_of}&path={world.folder}/a.txt",
            f"/file?{as_of}&pathBase64={above}",
            f"/tree?{as_of}&path=..",
        ):
            assert (await served.get(talk.url + target)).status == 403, target


async def test_a_tail_is_listed_and_restored_as_a_fork(served: Served) -> None:
    """What a final revert took out stays, and becomes a session of its own."""
    talk = await talking(served)
    kept = await talk.say("say kept")
    gone = await talk.say("write new.txt one")
    await served.post(f"{talk.url}/revert", {"messageID": gone})
    info = await talk.get("")
    assert info["revert"]["diff"].startswith("diff --git a/new.txt b/new.txt\n")
    assert await talk.get("/tails") == []
    await talk.say("say hello")
    assert "revert" not in await talk.get("")
    (tail,) = await talk.get("/tails")
    assert (tail["messageID"], tail["messages"]) == (gone, 3)
    assert None not in tail.values()
    reply = await served.post(f"{talk.url}/tails/{tail['id']}/restore")
    fork = reply.json
    assert fork["fork"] == {"sessionID": info["id"], "messageID": gone}
    assert "parentID" not in fork
    prompts = [
        each["parts"][0]["text"]
        for each in (await served.get(f"/session/{fork['id']}/message")).json
        if each["info"]["role"] == "user"
    ]
    assert prompts == ["say kept", "write new.txt one"]
    assert await talk.get("/forks") == [fork]
    assert kept in [each["info"]["id"] for each in await talk.get("/message")]
    assert (await served.post(f"{talk.url}/tails/bad/restore")).status == 400
    assert (await served.post(f"{talk.url}/tails/tail_nope/restore")).status == 404


async def test_a_fork_ends_before_a_message(served: Served) -> None:
    """A session of its own with the same texts and new ids, which the origin lists."""
    talk = await talking(served)
    await talk.say("say one")
    second = await talk.say("say two")
    await served.patch(talk.url, {"title": "T"})
    fork = (await served.post(f"{talk.url}/fork", {"messageID": second})).json
    assert (fork["title"], fork["fork"]["messageID"]) == ("T (fork #1)", second)
    whole = (await served.post(f"/session/{fork['id']}/fork")).json
    assert whole["title"] == "T (fork #2)"
    own, copied = await talk.get("/message"), (await served.get(f"/session/{whole['id']}/message"))
    assert [each["parts"][0].get("text") for each in copied.json] == [
        each["parts"][0].get("text") for each in own[:2]
    ]
    assert not {each["info"]["id"] for each in copied.json} & {each["info"]["id"] for each in own}
    assert await talk.get("/forks") == [fork]
    assert await talk.get("/children") == []
    for raw, status in ((b'{"messageID":"bad"}', 400), (b"{bad", 400), (b"[]", 400)):
        assert (await served.post(f"{talk.url}/fork", raw=raw)).status == status
    assert (await served.post(f"{talk.url}/fork", {"messageID": "msg_unknown"})).status == 404
    assert (await served.post("/session/ses_nope/fork")).status == 404


async def test_lines_have_their_writers(served: Served) -> None:
    """Who wrote each line of a file, from the request's directory; and why there is no answer."""
    talk = await talking(served)
    folder = served.world.folder
    (folder / "poem.txt").write_text("one\ntwo\n")
    prompt = await talk.say("read poem.txt\nedit poem.txt two TWO")
    blame = (await served.get("/blame?path=poem.txt")).json
    assert blame["path"] == "poem.txt"
    assert [(line["text"], line["origin"]) for line in blame["lines"]] == [("one", 0), ("TWO", 1)]
    before, session = blame["origins"]
    assert before == {"kind": "before"}
    assert (session["kind"], session["title"], session["tool"]) == ("session", "talk", "edit")
    assert (session["promptID"], f"/session/{session['sessionID']}") == (prompt, talk.url)
    odd = b"\xff.txt"
    (folder / os.fsdecode(odd)).write_text("x\n")
    named = quote(base64.b64encode(odd))
    assert (await served.get(f"/blame?pathBase64={named}")).json["pathBase64"] == "/y50eHQ="
    (folder / "binary").write_bytes(b"a\0")
    statuses = {"missing": 404, "..": 403, "": 400, "binary": 400, "%00": 400}
    for path, status in statuses.items():
        assert (await served.get(f"/blame?path={path}")).status == status, path
    for text in ("%25", "%C3%BF", "YQ"):
        assert (await served.get(f"/blame?pathBase64={text}")).status == 400


async def test_lines_outside_of_the_root_are_refused(world: World) -> None:
    """By their path, or where it leads."""
    inside = world.folder / "inside"
    inside.mkdir()
    (inside / "a").write_text("one\n")
    (inside / "up").symlink_to("..")
    place = {"data_dir": world.root / "data", "database": world.database}
    async with kedge.open(world.folder, **place) as engine:  # type: ignore[arg-type]  # paths
        above = await engine.sessions.create("Secret plans")
        turn, files = above.turn("x"), ["inside/a", "b"]
        async with turn, turn.step() as step, step.tool("write", {}, reads=files, writes=files):
            (inside / "a").write_text("two\n")
            (world.folder / "b").write_text("two\n")
    async with serve(world, root=str(inside)) as served:
        at = f"directory={quote(str(inside))}"
        (entry,) = (await served.get(f"/timeline?{at}")).json
        assert [file["path"] for file in entry["files"]] == ["inside/a"]
        assert "title" not in entry
        assert entry["sessionID"] == above.id
        for path, status in (("a", 200), ("..", 403), ("../b", 403)):
            assert (await served.get(f"/timeline?{at}&path={path}")).status == status, path
        (origin,) = (await served.get(f"/blame?{at}&path=a")).json["origins"]
        assert (origin["sessionID"], "title" in origin) == (above.id, False)
        for path, status in (("a", 200), ("../a.txt", 403), ("up/a.txt", 403), ("a%00", 400)):
            reply = await served.get(f"/blame?directory={quote(str(inside))}&path={path}")
            assert reply.status == status, path


async def test_the_timeline_is_listed(served: Served) -> None:
    """Newest first, by pages, filtered; with what was undone and found."""
    talk = await talking(served)
    first = await talk.say("write new.txt one")
    await talk.say("write other.txt two")
    (served.world.folder / "new.txt").write_text("outside\n")
    await talk.say("read new.txt\nedit new.txt outside inside")
    body = {"messageID": first, "strategy": "overwrite"}
    await served.post(f"{talk.url}/revert", body)
    found = (await served.get("/timeline")).json
    kinds = ["revert", "session", "outside", "session", "session"]
    assert [entry["kind"] for entry in found] == kinds
    assert [entry.get("tool") for entry in found] == [None, "edit", None, "write", "write"]
    assert found[4]["files"] == [{"path": "new.txt", "status": "added"}]
    assert (found[4]["promptID"], found[4]["title"]) == (first, "talk")
    pages: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        reply = await served.get(
            f"/timeline?limit=1&cursor={cursor}" if cursor else "/timeline?limit=1"
        )
        pages += reply.json
        cursor = reply.headers.get("x-next-cursor")
    assert pages == found
    other = (await served.get("/timeline?path=other.txt")).json
    assert [entry["kind"] for entry in other] == ["revert", "session"]
    time = found[3]["time"]
    assert (await served.get(f"/timeline?since={time}")).json == found[:4]
    assert (await served.get(f"/timeline?until={time}")).json == found[4:]
    session = talk.url.rpartition("/")[2]
    own = (await served.get(f"/timeline?session={session}")).json
    assert own == [entry for entry in found if entry["kind"] != "outside"]
    for query in ("limit=-1", "since=x", "cursor=bad", "session=bad", "path=%00", "pathBase64=!"):
        assert (await served.get(f"/timeline?{query}")).status == 400, query
    assert (await served.get("/timeline?path=..")).status == 403


async def test_words_are_found(served: Served) -> None:
    """In titles first, then in messages and tool calls, page by page."""
    talk = await talking(served)
    await talk.say("write reef.txt coral")
    titled = (await served.post("/session", {"title": "Coral reef"})).json["id"]
    outside = served.world.root / "outside"
    outside.mkdir()
    far = (await served.post(f"/session?directory={outside}", {"title": "coral"})).json["id"]
    hits = (await served.get("/search?query=CORAL")).json
    assert (hits[0]["session"]["id"], hits[0]["excerpt"]) == (titled, "Coral reef")
    assert "messageID" not in hits[0]
    assert {hit["session"]["id"] for hit in hits[1:]} == {talk.url.rpartition("/")[2]}
    assert all(hit["messageID"].startswith("msg") and hit["partID"] for hit in hits[1:])
    first = await served.get("/search?query=coral&limit=1")
    rest = await served.get(f"/search?query=coral&cursor={first.headers['x-next-cursor']}")
    assert first.json + rest.json == hits
    everywhere = (await served.get("/search?query=coral&scope=all")).json
    assert far in [hit["session"]["id"] for hit in everywhere]
    assert [
        hit["session"]["id"]
        for hit in (await served.get(f"/search?query=coral&directory={outside}")).json
    ] == [far]
    assert (await served.get("/search?query=coral&path=sub")).json == []
    assert (await served.get("/search?query=%25")).json == []
    for query in ("", "?query=x&limit=-1", "?query=x&cursor=bad", "?query=x&scope=bogus"):
        assert (await served.get(f"/search{query}")).status == 400
