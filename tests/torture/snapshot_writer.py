"""A program that keeps snapshots in an object store until it is killed, and says what is durable.

Its lines: `opened`; `kept` session tree files, when a flush returned; `releasing` session, before
nothing of it counts any more. Files are a mapping of names to contents.
"""

import random
from pathlib import Path

from kedge.snapshot.objects import journals
from kedge.snapshot.objects.formats import BLOB, EMPTY_TREE, TREE, blob_id, encode_tree
from kedge.snapshot.objects.store import ObjectStore
from tests.torture.orders import received, report

FILE = 0o100644
ACTIONS = {"keep": 30, "release": 2, "collect": 3, "reopen": 2}


class Writer:
    """A tree in memory that changes, file by file; what did not change is not put again."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.sessions = [f"ses_{seed}_{n}" for n in range(3)]
        self.count = 0
        self.open()

    def open(self) -> None:
        """Begin like a new process: nothing is known to be in the store."""
        self.store = ObjectStore(self.folder)
        self.tree: dict[str, str] = {}

    def act(self) -> None:
        """Do one thing."""
        (action,) = self.chance.choices([*ACTIONS], [*ACTIONS.values()])
        getattr(self, action)()

    def keep(self) -> None:
        """Change some files, keep the tree, and say so once it is durable."""
        for _ in range(self.chance.randrange(1, 4)):
            self.count += 1
            content = f"{self.count} of {self.sessions[0]} " * self.chance.choice([1, 10, 1000])
            self.tree |= {f"f{self.chance.randrange(12)}": content}
            self.store.put(BLOB, content.encode())
        entries = [
            (name.encode(), FILE, blob_id(content.encode())) for name, content in self.tree.items()
        ]
        tree = self.store.put(TREE, encode_tree(entries))
        session = self.chance.choice(self.sessions)
        base = self.store.put(BLOB, b"644 755")
        self.store.keep(session, files=tree, notes=EMPTY_TREE, base=base)
        self.store.flush()
        report("kept", session, tree.hex(), self.tree)

    def release(self) -> None:
        """Release a session."""
        session = self.chance.choice(self.sessions)
        report("releasing", session)
        self.store.release(session)
        self.store.flush()

    def collect(self) -> None:
        """Collect as much as can be."""
        self.store.collect(keep_taken_for=0)

    def reopen(self) -> None:
        """End in order and begin again."""
        self.store.close()
        self.open()


if __name__ == "__main__":
    orders = received()
    journals.SEAL_OBJECTS = 40
    journals.BUFFER_BYTES = 10_000
    writer = Writer(Path(orders.database), orders.seed)
    report("opened")
    while True:
        writer.act()
