"""Our side of a peer process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Self

_ROOT = Path(__file__).parents[3]


class Peer:
    """A process that has the store open; killed on leaving, whatever happened."""

    def __init__(self, store: Path, *, hung_after: float = 60.0) -> None:
        command = [sys.executable, "-m", "tests.storage.crash.peer_process", str(store), str(hung_after)]
        self.process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input: IO[str] = self.process.stdin
        self._output: IO[str] = self.process.stdout

    def __enter__(self) -> Self:
        assert self.answer() == ["opened"]
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.kill()
        self._output.close()

    def tell(self, *words: str) -> None:
        self._input.write(" ".join(words) + "\n")
        self._input.flush()

    def answer(self) -> list[str]:
        line = self._output.readline()
        assert line, f"the peer ended: {self.process.wait()}"
        return line.split()

    def ask(self, *words: str) -> list[str]:
        self.tell(*words)
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if not self._input.closed:
            self._input.close()

    def leave(self) -> int:
        """A clean close; answers the exit code."""
        self._input.close()
        return self.process.wait()

    def suspend(self) -> None:
        """Alive, but without a sign of life."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)
