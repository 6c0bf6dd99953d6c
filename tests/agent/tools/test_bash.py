"""The tool that runs commands, on real processes."""

import asyncio
import os
from pathlib import Path

import pytest

import kedge
from kedge.agent.output_limit import DEFAULT
from kedge.agent.shell import output as collecting
from kedge.agent.shell import process
from kedge.agent.tools.bash import bash, run_shell
from kedge.agent.tools.call import Call
from kedge.agent.tools.tool import ToolFailure
from kedge.domain.parts import ToolCompleted, ToolError, ToolPart, ToolRunning
from kedge.engine import os_process, processes
from kedge.store.queries.processes import processes_of
from tests.agent.tools.scene import Ask, Rejected, Scene, scene_in
from tests.support.polling import until, until_gone, until_told
from tests.support.timeouts import PATIENCE


async def abort_when(scene: Scene, command: str, marker: Path) -> str:
    """Run a command, and abort it when it has written a file; gives what the file says."""
    process = asyncio.create_task(scene.run(bash, command=command))
    said = await until_told(marker)
    process.cancel()
    with pytest.raises(asyncio.CancelledError):
        await process
    return said


async def test_output_exit_code_and_files(scene: Scene) -> None:
    """Both channels are one text, a failed command is a completed call, its files are its own."""
    line = "echo hi; echo err >&2; echo two > c.txt; exit 3"
    output = await scene.run(bash, command=line, description="run it")
    assert output.text.startswith("hi\nerr\n\n\n<shell_metadata>\n")
    assert "exit code 3" in output.text
    assert output.title == line
    assert output.metadata == {"output": "hi\nerr\n", "exit": 3, "truncated": False}
    (part,) = await scene.tool_parts()
    assert isinstance(part.state, ToolCompleted)
    (changed,) = await scene.session.diff()
    assert changed.file == "c.txt"


async def test_a_command_without_output_says_so(scene: Scene) -> None:
    """A model need not wonder."""
    output = await scene.run(bash, command="true")
    assert output.text == "(no output)"
    assert output.metadata == {"output": "", "exit": 0, "truncated": False}


async def test_a_command_gets_no_input_and_knows_its_call(scene: Scene) -> None:
    """Standard input is empty, the environment carries the mark, the gate leaves nothing behind."""
    line = 'cat; echo "$KEDGE_CALL"; pwd; echo "[$go]"; ls /proc/self/fd | wc -l'
    output = await scene.run(bash, command=line)
    (part,) = await scene.tool_parts()
    mark, place, go, descriptors = output.text.splitlines()
    assert mark.split(":")[-1] == part.id
    assert place == str(scene.folder.resolve())
    assert go == "[]"
    # Its own three, and the folder that it lists.
    assert descriptors == "4"


async def test_a_mark_is_added_to_those_of_outer_calls(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kedge inside of a command runs still belongs to the command."""
    monkeypatch.setenv(os_process.MARK, "prt_outer")
    output = await scene.run(bash, command="echo $KEDGE_CALL")
    (part,) = await scene.tool_parts()
    assert output.text.strip() == f"prt_outer:{part.id}"


async def test_permission_is_asked_for_each_command(scene: Scene) -> None:
    """With the words of each, and what would be allowed for good."""
    await scene.run(bash, command="ls && rm -rf x; git log --oneline | head > /dev/null")
    (ask,) = scene.person.asked
    assert ask.permission == "bash"
    assert ask.patterns == ["ls", "rm -rf x", "git log --oneline", "head > /dev/null"]
    assert ask.always == ["ls *", "rm *", "git log *", "head *"]
    assert ask.metadata["command"].startswith("ls && rm")


async def test_nothing_runs_without_permission(scene: Scene) -> None:
    """And nothing is observed."""
    scene.person.rejects.add("bash")
    with pytest.raises(Rejected):
        await scene.run(bash, command="touch made")
    assert not (scene.folder / "made").exists()


@pytest.mark.parametrize(
    "line",
    [
        "cat {outside}/file",
        "cd {outside} && ls",
        "echo x > {outside}/new",
        "cd ..; cd {name}; ls",
        "cp link/file here",
        "bash -c 'rm {outside}/file2'",
    ],
)
async def test_what_is_outside_is_asked_for_first(scene: Scene, tmp_path: Path, line: str) -> None:
    """By real folders, whichever way they are named."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (scene.folder / "link").symlink_to(outside)
    await scene.run(bash, command=line.format(outside=outside, name=outside.name))
    first, *_, last = scene.person.asked
    assert (first.permission, last.permission) == ("external_directory", "bash")
    assert f"{outside}/*" in first.patterns


async def test_what_folders_are_allowed_for_good(scene: Scene, tmp_path: Path) -> None:
    """Not one whose name would mean others, nor all of them."""
    odd, plain = tmp_path / "o*d", tmp_path / "plain"
    odd.mkdir()
    plain.mkdir()
    await scene.run(bash, command=f"cat '{odd}/x' '{plain}/x' /x-is-not-there; ls / > /dev/null")
    first, _ = scene.person.asked
    assert first.patterns == [f"{odd}/*", f"{plain}/*", "/*"]
    assert first.always == [f"{plain}/*"]


async def test_a_folder_that_is_swapped_while_somebody_is_asked(
    scene: Scene, tmp_path: Path
) -> None:
    """What was allowed was allowed for the folder that was there."""
    (scene.folder / "sub").mkdir()

    async def swap(ask: Ask) -> None:
        if ask.permission != "bash":
            return
        (scene.folder / "sub").rmdir()
        (scene.folder / "sub").symlink_to(tmp_path)

    scene.person.meanwhile = swap
    with pytest.raises(ToolFailure, match="another folder"):
        await scene.run(bash, command="touch made", workdir="sub")
    assert not (tmp_path / "made").exists()


async def test_what_is_inside_is_not_asked_for(scene: Scene) -> None:
    """Nor are devices that are no files."""
    line = "mkdir -p a/b; cd a/b; cat x ./a 2> /dev/null; echo hi > ./y; cat < ./y"
    await scene.run(bash, command=line)
    assert scene.person.permissions == ["bash"]


async def test_another_directory(scene: Scene, tmp_path: Path) -> None:
    """Inside it is just taken; outside it is asked for; one that is not there is an error."""
    (scene.folder / "sub").mkdir()
    output = await scene.run(bash, command="pwd", workdir="sub")
    assert output.text.strip().endswith("/work/sub")
    assert scene.person.permissions == ["bash"]
    await scene.run(bash, command="pwd", workdir=str(tmp_path))
    assert scene.person.permissions == ["bash", "external_directory", "bash"]
    with pytest.raises(ToolFailure, match="no directory"):
        await scene.run(bash, command="pwd", workdir="gone")


@pytest.mark.parametrize(
    ("input", "complaint"),
    [
        ({"command": "  \n"}, "no command"),
        ({"command": "echo a\0b"}, "NUL"),
        ({"command": "ls", "timeout": 0}, "more than 0"),
        ({"command": "ls", "timeout": -1}, "more than 0"),
        ({"command": ": " + 200_000 * "x"}, "too long"),
        ({"command": 7}, "arguments of bash are wrong"),
    ],
)
async def test_bad_arguments(scene: Scene, input: dict[str, object], complaint: str) -> None:
    """Each is refused with what to do about it, and the session goes on."""
    with pytest.raises(ToolFailure, match=complaint):
        await scene.run(bash, **input)
    assert (await scene.run(bash, command="echo on")).text == "on\n"


async def test_a_command_that_takes_too_long(scene: Scene) -> None:
    """Is ended with all that it started; what it said is kept."""
    line = "echo begun; sleep 1000 & echo $! > pid; wait"
    output = await scene.run(bash, command=line, timeout=1500)
    assert output.text.startswith("begun\n")
    assert "longer than 1500 ms" in output.text
    assert output.metadata["exit"] is None
    await until_gone(int((scene.folder / "pid").read_text()))
    assert await scene.engine.store.read(lambda: processes_of(scene.session.id)) == []


async def test_abort_ends_everything(scene: Scene, tmp_path: Path) -> None:
    """Children, grandchildren, those in sessions of their own, those that do not listen."""
    script = tmp_path / "spawn.sh"
    script.write_text(
        "sleep 1000 & echo -n $! ' '\n"
        "setsid sleep 1001 & echo -n $! ' '\n"
        "(trap '' TERM; while :; do sleep 1002; done) & echo -n $! ' '\n"
        "env -i setsid sleep 1003 & echo $!\n"
    )
    line = f"echo working; bash {script} > said; mv said told; wait; sleep 1004"
    said = await abort_when(scene, line, scene.folder / "told")
    pids = [int(word) for word in said.split()]
    assert len(pids) == 4
    # The last wiped its environment and left, so nothing tells whose it is but its parent.
    await until_gone(*pids[:3])
    (part,) = await scene.tool_parts()
    assert isinstance(part.state, ToolError)
    assert part.state.metadata is not None
    assert part.state.metadata["interrupted"] is True
    assert part.state.metadata["output"].startswith("working\n")
    if os_process.process(pids[3]) is not None:
        os.kill(pids[3], 9)
    assert await scene.engine.store.read(lambda: processes_of(scene.session.id)) == []


async def test_abort_ends_stopped_processes(scene: Scene) -> None:
    """A stopped process hears nothing, but it can be killed."""
    line = "bash -c 'echo $$ > pid; kill -STOP $$; sleep 1000'"
    pid = await abort_when(scene, line, scene.folder / "pid")
    await until_gone(int(pid))


async def test_what_is_left_running(scene: Scene) -> None:
    """The call ends with its shell; what goes on is not ended by a broken pipe, and can be read."""
    go = scene.folder / "go"
    os.mkfifo(go)
    line = "(read x < go; echo late; echo late; echo $BASHPID > done) & echo early"
    output = await scene.run(bash, command=line)
    assert output.text.startswith("early\n")
    assert "still running" in output.text
    (part,) = await scene.tool_parts()
    kept = scene.engine.data / "tool-output" / scene.session.id / part.id
    assert str(kept) in output.text
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    await asyncio.to_thread(go.write_text, "\n")
    await until_gone(int(await until_told(scene.folder / "done")))
    await until(lambda: kept.read_text() == "early\nlate\nlate\n")


async def test_what_is_left_running_when_the_engine_closes(scene: Scene) -> None:
    """Nothing is leaked; what still runs is left alone."""
    output = await scene.run(bash, command="sleep 1000 & echo $!")
    pid = int(output.text.splitlines()[0])
    await scene.engine.close()
    assert os_process.process(pid) is not None
    os.kill(pid, 9)


async def test_a_flood_of_output(scene: Scene) -> None:
    """Both ends are shown, the whole is in a file, and memory stays small."""
    line = "echo first; yes 0123456789 | head -c 5000000; echo; echo last"
    output = await scene.run(bash, command=line)
    assert output.text.startswith("first\n0123456789\n")
    assert output.text.endswith("last\n")
    assert len(output.text.encode()) <= DEFAULT.max_bytes + 500
    assert output.metadata["truncated"] is True
    assert output.metadata["output"].endswith("last\n")
    assert len(output.metadata["output"].encode()) <= collecting.PREVIEW + 5
    (part,) = await scene.tool_parts()
    kept = scene.engine.data / "tool-output" / scene.session.id / part.id
    assert str(kept) in output.text
    assert kept.stat().st_size == len("first\n") + 5_000_000 + len("\nlast\n")


async def test_binary_output(scene: Scene) -> None:
    """Whatever the bytes, the output can be stored and read again."""
    line = r"printf 'a\0b\377\355\240\200\033[1mz'; head -c 300000 /dev/urandom"
    output = await scene.run(bash, command=line)
    assert output.text.startswith("a\0b\ufffd\ufffd\ufffd\ufffd\x1b[1mz")
    assert len(output.text.encode()) <= DEFAULT.max_bytes + 500
    (part,) = await scene.tool_parts()
    assert isinstance(part.state, ToolCompleted)
    assert part.state.output == output.text


async def test_progress_is_shown(scene: Scene) -> None:
    """People see what has come while the command still runs, also if nothing more comes."""
    line = "echo working; until [ -e go ]; do sleep 0.01; done; echo done"
    async with scene.engine.events.subscribe() as events, asyncio.timeout(PATIENCE):
        working = asyncio.create_task(scene.run(bash, command=line))
        async for event in events:
            part = getattr(event.properties, "part", None)
            if isinstance(part, ToolPart) and isinstance(part.state, ToolRunning):
                shown = (part.state.metadata or {}).get("output")
                if shown == "working\n":
                    break
                assert shown in (None, "")
    (scene.folder / "go").touch()
    assert (await working).text == "working\ndone\n"


async def test_progress_that_cannot_be_stored_ends_the_command(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing goes on that nobody can follow."""

    async def broken(call: Call, **metadata: object) -> None:
        if metadata["output"]:
            raise RuntimeError("no store")

    monkeypatch.setattr(Call, "progress", broken)
    with pytest.raises(RuntimeError, match="no store"):
        await scene.run(bash, command="echo $$ > pid; cat pid; sleep 1000")
    await until_gone(int((scene.folder / "pid").read_text()))


@pytest.mark.parametrize("late", [False, True])
async def test_a_process_that_cannot_be_stored_does_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """It stands at its gate until it is known, and goes away if it never is."""
    seen: list[int] = []
    remember = processes.Processes.remember

    async def broken(self: processes.Processes, fence: object, part: str, pid: int) -> object:
        seen.append(pid)
        if late:
            await remember(self, fence, part, pid)  # type: ignore[arg-type]
        raise RuntimeError("no store")

    monkeypatch.setattr(processes.Processes, "remember", broken)
    with pytest.raises(RuntimeError, match="no store"):
        await scene.run(bash, command="touch made")
    await until_gone(*seen)
    assert not (scene.folder / "made").exists()


async def test_cancelled_at_the_gate(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """An abort before the process is known leaves none behind."""
    reached = asyncio.Event()
    seen: list[int] = []

    async def slow(self: processes.Processes, fence: object, part: str, pid: int) -> None:
        seen.append(pid)
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(processes.Processes, "remember", slow)
    working = asyncio.create_task(scene.run(bash, command="touch made"))
    await reached.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert [os_process.process(pid) for pid in seen] == [None]
    assert not (scene.folder / "made").exists()


async def test_a_process_that_does_not_end_is_not_waited_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An abort is over, whatever the system does."""

    async def powerless(known: object) -> bool:
        return False

    monkeypatch.setattr(process, "end_processes", powerless)
    monkeypatch.setattr(process, "_PATIENCE", 0.01)
    pid = int(await abort_when(scene, "echo $$ > pid; exec sleep 1000", scene.folder / "pid"))
    os.kill(pid, 9)
    await until_gone(pid)
    # Its end is heard of before the test is over, so that nothing is left behind.
    await until(lambda: not Path(f"/proc/{pid}").exists())


async def test_a_persons_own_command(scene: Scene) -> None:
    """Nobody is asked, and what it writes is shown as it is."""
    async with scene.step() as step, step.tool("bash", {"command": "x"}) as call:
        output = await run_shell(Call(step, call, scene.person), "echo out; exit 3")
        call.output = output.text
    assert scene.person.asked == []
    assert (output.text, output.title) == ("out\n", "")
    assert output.metadata == {"output": "out\n", "exit": 3}


async def test_outputs_are_removed_with_their_session(folder: Path, tmp_path: Path) -> None:
    """When it is purged, here or by an engine that keeps its own elsewhere."""
    settings = kedge.Settings(retention=0.0)
    database = tmp_path / "kedge.db"
    async with (
        scene_in(folder, database, settings=settings) as one,
        scene_in(folder, database, settings=settings) as other,
    ):
        kept = []
        for scene in (one, other):
            await scene.run(bash, command="head -c 400000 /dev/zero")
            kept.append(scene.engine.data / "tool-output" / scene.session.id)
            (part,) = await scene.tool_parts()
            assert (kept[-1] / part.id).stat().st_size == 400_000
        assert await one.engine.upkeep.release() == 0
        await one.session.delete()
        assert await one.engine.upkeep.purge() == 1
        assert [folder.exists() for folder in kept] == [False, True]
        # As if another machine, with a data folder of its own, had purged it.
        aside = tmp_path / "aside"
        await other.session.delete()
        kept[1].rename(aside)
        assert await one.engine.upkeep.purge() == 1
        aside.rename(kept[1])
        await one.engine.upkeep.release()
        assert not kept[1].exists()


@pytest.mark.parametrize("line", ['D=$(cat y); cat "$D/x"', "rm $NOT_SET_AT_ALL", "cd $(cat y)"])
async def test_files_that_nobody_can_place_are_asked_for(scene: Scene, line: str) -> None:
    """They may be anywhere; what is allowed for good by it is this line."""
    await scene.run(bash, command=line)
    first, *_, last = scene.person.asked
    assert (first.permission, last.permission) == ("external_directory", "bash")
    assert first.patterns == [f"(not understood) {line}"]
    assert first.always == first.patterns


async def test_a_name_that_no_file_can_have(scene: Scene) -> None:
    """It is no reason to fail."""
    await scene.run(bash, command=f"echo /usr/bin/{'x' * 300} bin/{'y' * 300} > /dev/null")
    assert scene.person.asked[0].patterns == ["/usr/bin/*"]
