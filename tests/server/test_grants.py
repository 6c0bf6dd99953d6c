"""Commands of the agent as clients of their own server: they can read, but not grant anything."""

import json
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from kedge.server.grants import CommandGuard
from kedge.server.routes import ALL
from tests.support.servers import scratch
from tests.support.timeouts import PATIENCE
from tests.support.unprivileged import RUN_UNPRIVILEGED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sockets are followed in /proc")

GRANTING = {
    *("permission.reply", "permission.respond", "kedge.permission.forget"),
    *("question.reply", "question.reject"),
    *("session.prompt", "session.prompt_async", "session.shell", "part.update"),
    *("session.command", "session.init", "session.summarize"),
    *("session.create", "session.update"),
    *("session.revert", "session.unrevert", "project.update"),
    *("kedge.session.undo", "kedge.session.redo"),
}
"""Routes that are built, and give an agent more than its rules do."""

CLIENT = """\
import http.client, json, os, sys
out, url, requests = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
codes = []
for method, path, body in requests:
    client = http.client.HTTPConnection(url.removeprefix("http://"))
    client.request(method, path, json.dumps(body), {"content-type": "application/json"})
    answer = client.getresponse()
    codes.append([answer.status, answer.read().decode()])
with open(out + ".new", "w") as file:
    json.dump(codes, file)
os.rename(out + ".new", out)
"""
"""Asks, and writes down what came back."""

PASSING = """\
import array, os, socket, sys, time
out, url, path = sys.argv[1:]
host, port = url.removeprefix("http://").split(":")
body = b'{"reply": "once"}'
family = socket.AF_INET6 if ":" in host or sys.argv[0].endswith("6.py") else socket.AF_INET
client = socket.socket(family)
client.connect((("::ffff:" if family == socket.AF_INET6 else "") + host, int(port)))
head = f"POST {path} HTTP/1.1\\r\\nhost: {host}:{port}\\r\\ncontent-type: application/json\\r\\n"
head += f"content-length: {len(body)}\\r\\nconnection: close\\r\\n\\r\\n"
if family == socket.AF_INET:
    # Nobody holds it while the server looks: it is on its way from one process to another.
    near, far = socket.socketpair()
    handed = array.array("i", [client.fileno()])
    near.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handed)])
    client.sendall(head.encode())
    client.sendall(body)
    client.close()
    time.sleep(1)
    _, [(_, _, data)], _, _ = far.recvmsg(1, socket.CMSG_LEN(4))
    client = socket.socket(fileno=array.array("i", data)[0])
else:
    client.sendall(head.encode() + body)
answer = client.recv(65536).decode()
with open(out + ".new", "w") as file:
    file.write(f'[[{answer.split()[1]}, ""]]')
os.rename(out + ".new", out)
"""
"""Hands its connection on while its request is looked at; or uses the newer kind of address."""


HIDING = """\
import ctypes, os, runpy, subprocess, sys, threading, time
way, sys.argv = sys.argv[1], sys.argv[2:]
libc = ctypes.CDLL(None)

def ask():
    if way == "by a thread with files of its own":
        # CLONE_FILES
        assert libc.unshare(0x400) == 0
    if way == "by a child of such a process":
        subprocess.run([sys.executable, *sys.argv])
    else:
        runpy.run_path(sys.argv[0])
    os._exit(0)

threading.Thread(target=ask).start()
if "thread" in way:
    time.sleep(1000)
# The first thread ends alone: the process looks as if it had ended.
libc.pthread_exit(None)
"""
"""Looks as if it held nothing, or was not there."""

SSHD = """\
import ctypes, time
# PR_SET_NAME, PR_SET_DUMPABLE
assert ctypes.CDLL(None).prctl(15, b"sshd", 0, 0, 0) == 0
assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0
print(flush=True)
time.sleep(1000)
"""
"""Stands for the end of a tunnel, which does not show what it holds."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server in a process of its own, as people start it."""

    process: subprocess.Popen[str]
    url: str
    project: Path

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Ask as a person does: from a process that the server did not start."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        request = Request(self.url + path, data, headers, method=method)
        try:
            with urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except HTTPError as error:
            return error.code, json.loads(error.read())

    def session(self) -> str:
        """A new session."""
        _, made = self.ask("POST", "/session", {})
        return str(made["id"])

    def run(self, command: str, session: str | None = None) -> dict[str, Any]:
        """Have the agent run a command; gives the state of the call."""
        id = session or self.session()
        parts = [{"type": "text", "text": f"bash {command}"}]
        status, _ = self.ask("POST", f"/session/{id}/message", {"parts": parts})
        assert status == 200
        _, messages = self.ask("GET", f"/session/{id}/message")
        found = [part for each in messages for part in each["parts"] if part["type"] == "tool"]
        state: dict[str, Any] = found[-1]["state"]
        return state

    def pending(self) -> list[str]:
        """The permissions that are waited for."""
        return [each["id"] for each in self.ask("GET", "/permission")[1]]

    def written(self, name: str) -> list[list[Any]]:
        """What a client wrote down, when it has."""
        path = self.project / name
        waiting = threading.Event()
        while not path.exists():
            waiting.wait(0.02)
        found: list[list[Any]] = json.loads(path.read_text())
        path.unlink()
        return found

    def waiting_permission(self) -> str:
        """A permission that the agent asks for, in a session of its own."""
        parts = [{"type": "text", "text": "read /etc/hostname"}]
        before = set(self.pending())
        self.ask("POST", f"/session/{self.session()}/prompt_async", {"parts": parts})
        while not (new := set(self.pending()) - before):
            threading.Event().wait(0.02)
        return new.pop()


@contextmanager
def serving(root: Path, *options: str, rights: str | None = None) -> Iterator[Server]:
    """A server on a folder that has the clients in it."""
    project = root / "project"
    project.mkdir()
    (project / "client.py").write_text(CLIENT)
    (project / "hiding.py").write_text(HIDING)
    (project / "passing.py").write_text(PASSING)
    (project / "passing6.py").write_text(PASSING)
    command = [sys.executable, "-m", "kedge", "serve", "--port", "0", *options]
    if rights is not None:
        command = [sys.executable, "-c", rights, *command]
    environ = scratch(root / "home")
    config = Path(environ["XDG_CONFIG_HOME"], "kedge", "kedge.json")
    config.parent.mkdir()
    rules = {"bash": "allow", "external_directory": {"*": "allow", "/etc/*": "ask"}}
    config.write_text(json.dumps({"permission": rules}))
    with subprocess.Popen(
        [*command, "--data", str(root / "data"), str(project)],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield Server(process, process.stdout.readline().split()[-1], project)
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all that does it no harm."""
    with serving(tmp_path_factory.mktemp("commands")) as made:
        yield made


def client(server: Server, *requests: tuple[str, str, object]) -> str:
    """The command line of a client that writes what it heard to the file `out`."""
    return f"{sys.executable} client.py out {server.url} '{json.dumps(requests)}'"


WAYS = {
    "directly": "{}",
    "in a new session": "setsid {}",
    "without an environment": "env -i {}",
    "in the background": "nohup {} > /dev/null 2>&1 &",
    "after two forks": "(setsid sh -c '{} &' &)",
    "when its parents are gone": "(env -i setsid sh -c 'while kill -0 '$$'; do sleep 0.05; done;"
    " {}' > /dev/null 2>&1 &)",
    "with another parent death": "sh -c '(sh -c \"sleep 0.3; {}\" &) ; kill -9 $$'",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_command_cannot_answer_its_own_permission(server: Server, way: str) -> None:
    """Wherever it goes it descends from the server; a person's answer passes."""
    permission = server.waiting_permission()
    path = f"/permission/{permission}/reply"
    (server.project / "ask.sh").write_text(client(server, ("POST", path, {"reply": "once"})))
    server.run(WAYS[way].format("/bin/sh ask.sh"))
    [[code, answer]] = server.written("out")
    assert code == 403, answer
    assert json.loads(answer)["name"] == "Refused"
    assert "commands that this server runs may not" in json.loads(answer)["data"]["message"]
    assert permission in server.pending()
    assert server.ask("POST", path, {"reply": "once"}) == (200, True)
    assert permission not in server.pending()


@pytest.mark.parametrize("name", ["passing.py", "passing6.py"])
def test_a_command_cannot_hide_its_connection(server: Server, name: str) -> None:
    """Neither by handing it on while the server looks, nor by another kind of address."""
    permission = server.waiting_permission()
    path = f"/permission/{permission}/reply"
    server.run(f"{sys.executable} {name} out {server.url} {path}")
    assert server.written("out") == [[403, ""]]
    assert permission in server.pending()
    assert server.ask("POST", path, {"reply": "reject"}) == (200, True)


def test_a_command_that_does_not_wait_grants_nothing(server: Server) -> None:
    """A connection that nobody holds any more could be anybody's."""
    permission = server.waiting_permission()
    path = f"/permission/{permission}/reply"
    code = f"""\
        import socket
        host, port = "{server.url}".removeprefix("http://").split(":")
        for _ in range(20):
            client = socket.create_connection((host, int(port)))
            head = "POST {path} HTTP/1.1\\r\\nhost: localhost\\r\\n"
            body = '{{"reply": "once"}}'
            head += f"content-type: application/json\\r\\ncontent-length: {{len(body)}}\\r\\n\\r\\n"
            client.sendall((head + body).encode())
            client.close()
        """
    (server.project / "rude.py").write_text(textwrap.dedent(code))
    server.run(f"{sys.executable} rude.py; {client(server, ('GET', '/permission', None))}")
    [[status, answer]] = server.written("out")
    assert status == 200
    assert permission in [each["id"] for each in json.loads(answer)]
    assert server.ask("POST", path, {"reply": "reject"}) == (200, True)


def test_what_grants(server: Server) -> None:
    """Every route that gives an agent more than its rules is refused to a command; those that only
    read or take away are not."""
    permission, session = server.waiting_permission(), server.session()
    rule = [{"permission": "*", "pattern": "*", "action": "allow"}]
    parts = [{"type": "text", "text": "write b.txt x"}]
    _, messages = server.ask("GET", f"/session/{session}/message")
    assert messages == []
    here = f"/session/{session}"
    part = {"id": "prt_1", "sessionID": session, "messageID": "msg_1", "type": "text", "text": ""}
    model = {"providerID": "kedge", "modelID": "offline"}
    refused: dict[str, tuple[str, str, object]] = {
        "permission.reply": ("POST", f"/permission/{permission}/reply", {"reply": "always"}),
        "permission.respond": ("POST", f"{here}/permissions/{permission}", {"response": "once"}),
        "kedge.permission.forget": ("DELETE", "/permission/allowed/x", None),
        "question.reply": ("POST", "/question/que_1/reply", {"answers": [["yes"]]}),
        "question.reject": ("POST", "/question/que_1/reject", None),
        "session.prompt": ("POST", f"{here}/message", {"parts": parts, "agent": "build"}),
        "session.prompt_async": ("POST", f"{here}/prompt_async", {"parts": parts}),
        "session.shell": ("POST", f"{here}/shell", {"agent": "build", "command": "touch x"}),
        "session.command": ("POST", f"{here}/command", {"command": "init", "arguments": ""}),
        "session.init": ("POST", f"{here}/init", model | {"messageID": "msg_1"}),
        "session.summarize": ("POST", f"{here}/summarize", model),
        "part.update": ("PATCH", f"{here}/message/msg_1/part/prt_1", part),
        "session.create": ("POST", "/session", {"permission": rule}),
        "session.update": ("PATCH", here, {"permission": rule}),
        "session.revert": ("POST", f"{here}/revert", {"messageID": "msg_1"}),
        "session.unrevert": ("POST", f"{here}/unrevert", None),
        "kedge.session.undo": ("POST", f"{here}/undo", {"parts": ["prt_1"]}),
        "kedge.session.redo": ("POST", f"{here}/redo", {"parts": ["prt_1"]}),
        "project.update": ("PATCH", "/project/x", {"commands": {"start": "touch x"}}),
    }
    assert refused.keys() == GRANTING
    later = [
        ("PATCH", "/config", {"permission": "allow"}),
        ("PATCH", "/global/config", {}),
        ("PUT", "/auth/openai", {}),
        ("POST", "/mcp", {}),
        ("POST", "/pty", {}),
    ]
    harmless = [
        ("GET", "/session", None),
        ("GET", "/permission", None),
        ("POST", "/session", {"title": "mine"}),
        ("PATCH", here, {"title": "yours"}),
        ("POST", f"{here}/abort", None),
    ]
    server.run(client(server, *refused.values(), *later, *harmless))
    codes = [code for code, _ in server.written("out")]
    assert codes == [403] * (len(refused) + len(later)) + [200] * len(harmless)
    assert not (server.project / "x").exists()
    assert server.ask("POST", f"/permission/{permission}/reply", {"reply": "reject"})[0] == 200


def test_every_route_that_changes_something_was_thought_of() -> None:
    """A new route is either among those that grant, or among those that do not."""
    harmless = {
        *("session.delete", "session.fork", "session.abort", "kedge.session.restore"),
        "experimental.session.background",
        *("session.deleteMessage", "part.delete", "kedge.session.tails.restore"),
        *("app.log", "instance.dispose", "global.dispose"),
    }
    changing = {route.operation: route for route in ALL if route.method != "GET"}
    granting = {name for name, route in changing.items() if route.grants is not None}
    built = {name for name, route in changing.items() if route.status != 501}
    assert granting & built == GRANTING
    assert built - granting == harmless
    assert changing.keys() - built <= granting


@pytest.mark.parametrize(("name", "code"), [("sshd", 200), ("other", 403)])
def test_people_come_through_tunnels(tmp_path: Path, name: str, code: int) -> None:
    """What `sshd` connects for people passes, though it shows nobody what it holds; what else
    hides that does not."""
    hidden = f"""\
        import ctypes, runpy, sys
        # PR_SET_NAME, PR_SET_DUMPABLE
        assert ctypes.CDLL(None).prctl(15, b"{name}", 0, 0, 0) == 0
        assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0
        sys.argv = sys.argv[1:]
        runpy.run_path(sys.argv[0])
        """
    with serving(tmp_path, rights=RUN_UNPRIVILEGED) as server:
        body: dict[str, Any] = {"permission": []}
        asked = [("PATCH", f"/session/{server.session()}", body)]
        words = ["client.py", "out", server.url, json.dumps(asked)]
        command = [sys.executable, "-c", textwrap.dedent(hidden), *words]
        subprocess.run(command, cwd=server.project, check=True)
        assert [found for found, _ in server.written("out")] == [code]


@pytest.fixture(scope="module")
def tunnelled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server beside the end of a tunnel."""
    command = [sys.executable, "-c", SSHD]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as sshd:
        assert sshd.stdout is not None
        sshd.stdout.readline()
        with serving(tmp_path_factory.mktemp("tunnelled"), rights=RUN_UNPRIVILEGED) as made:
            yield made
        sshd.kill()


@pytest.mark.parametrize(
    "way",
    [
        "by a thread with files of its own",
        "by a process without its first thread",
        "by a child of such a process",
    ],
)
def test_a_command_cannot_hide_behind_a_tunnel(tunnelled: Server, way: str) -> None:
    """Where somebody may come through a tunnel, commands are still told from them."""
    rules = {"permission": [{"permission": "*", "pattern": "*", "action": "allow"}]}
    words = f"client.py out {tunnelled.url} '{json.dumps([('POST', '/session', rules)])}'"
    tunnelled.run(f"{sys.executable} hiding.py '{way}' {words} & wait")
    [[code, answer]] = tunnelled.written("out")
    assert code == 403, answer


def test_what_was_there_before_the_server_is_no_command(tmp_path: Path) -> None:
    """A script may start a client, and become the server."""
    waiting = """\
        import os, subprocess, time
        while not os.path.exists("ask.sh"):
            time.sleep(0.02)
        subprocess.run(["/bin/sh", "ask.sh"])
        """
    rights = f"""\
        import os, subprocess, sys
        command = [sys.executable, "-c", {textwrap.dedent(waiting)!r}]
        subprocess.Popen(command, cwd={str(tmp_path / "project")!r})
        os.execvp(sys.argv[1], sys.argv[1:])
        """
    with serving(tmp_path, rights=textwrap.dedent(rights)) as server:
        asked = client(server, ("PATCH", f"/session/{server.session()}", {"permission": []}))
        (server.project / "ask.new").write_text(asked)
        (server.project / "ask.new").rename(server.project / "ask.sh")
        assert [code for code, _ in server.written("out")] == [200]
        # What the agent runs is a command there, too.
        server.run(asked)
        assert [code for code, _ in server.written("out")] == [403]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.9", "::1"])
def test_a_process_is_no_command_of_its_own(address: str) -> None:
    """A program that serves may be its own client; its children may not, and where nobody holds a
    connection it could be theirs."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    guard = CommandGuard()
    with socket.create_server((address, 0), family=family) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection((address, port)) as own:
            assert guard.refusal(own.getsockname()[:2], port) is None
        code = f"import socket; s = socket.create_connection(('{address}', {port})); input()"
        child = [sys.executable, "-c", code]
        listener.accept()[0].close()
        with subprocess.Popen(child, stdin=subprocess.PIPE) as process:
            accepted, client = listener.accept()
            with accepted:
                assert "commands that this server runs" in str(guard.refusal(client[:2], port))
                process.communicate(b"\n")
                assert "cannot be told" in str(guard.refusal(client[:2], port))
        assert "cannot be told" in str(guard.refusal((address, 1), port))


def test_other_machines_are_no_commands() -> None:
    """Their sockets are not on this one; nor are those of addresses that were never given out."""
    for address in ("192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"):
        assert CommandGuard().refusal((address, 40000), 4096) is None


def test_commands_can_be_let(tmp_path: Path) -> None:
    """By whoever starts the server."""
    with serving(tmp_path, "--commands-may-grant") as server:
        path = f"/permission/{server.waiting_permission()}/reply"
        server.run(client(server, ("POST", path, {"reply": "once"})))
        assert server.written("out") == [[200, "true"]]


def test_a_server_buries_its_orphans(server: Server) -> None:
    """What commands left behind, when it has ended; and it takes no end from those who wait for
    it."""
    for code in (7, 0, 3):
        orphans = "for i in 1 2 3 4 5; do (setsid sh -c 'exit 9' &); (sh -c 'exit 5' &); done"
        state = server.run(f"{orphans}; exit {code}")
        assert state["metadata"]["exit"] == code
    done = subprocess.run(["true"], check=False)
    assert done.returncode == 0
    while True:
        told = subprocess.run(
            ["ps", "-o", "stat=,sid=,args=", "--ppid", str(server.process.pid)],
            capture_output=True,
            text=True,
            check=False,
        )
        if "Z" not in told.stdout:
            break
        threading.Event().wait(0.05)
