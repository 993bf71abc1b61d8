"""How a member gets in, whatever it does once it is a member: admitted, data held, and fenced when its time is over.

    joining -> loading (data) -> idle, and from there as the subclass goes on

A subclass says how its configuration is read (`_read_config`), how its data are opened (`_open_job`) and what it
forgets when it is fenced (`_reset`). What was answered last is answered again whenever the link comes back.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from services.any_config import UNREADABLE
from services.events import (
    COORDINATOR,
    CancelTimer,
    Compute,
    Effect,
    Identify,
    Note,
    Record,
    Send,
    SetTimer,
    Stop,
)
from services.messages import DataHeld, DataPart, Join, Message, Standing, Turned, WantData, Welcome
from services.records import Refused

JOIN_RETRY_MS = 500.0


class MemberConfig(Protocol):
    """What joining needs of a run's configuration."""

    @property
    def dataset_sha256(self) -> str: ...


class MemberData(Protocol):
    """What joining needs of the opened data."""

    @property
    def numerics(self) -> str: ...


ConfigT = TypeVar("ConfigT", bound=MemberConfig)
DataT = TypeVar("DataT", bound=MemberData)


class Joining(Generic[ConfigT, DataT]):
    """See the module's docstring. `number` is the member's, `launch` counts the starts of its process."""

    def __init__(self, number: int, launch: int) -> None:
        self.number = number
        self.launch = launch
        self.incarnation = 0
        self.generation = 0
        self.step = 0
        self._address = ""
        self._numerics = ""
        self._blob = bytearray()
        self._blob_before = 0  # its length when the join timer last fired
        self._opening = False  # the whole of it has come and is being opened
        self._data: DataT | None = None
        self._config: ConfigT | None = None
        self._answered: Message | None = None  # the last answer to the coordinator, to be given again
        self._now_out: list[Effect] = []
        self._linked = False
        self._reset()

    def _reset(self) -> None:
        """Forget everything but the data: as if the process had just started. Subclasses add theirs."""
        self.generation = self.step = 0
        self._blob = bytearray()
        self._blob_before = 0  # its length when the join timer last fired
        self._opening = False  # the whole of it has come and is being opened
        self._answered = None

    def _read_config(self, text: str) -> ConfigT:
        raise NotImplementedError

    def _open_job(self, blob: bytes) -> object:
        raise NotImplementedError

    @property
    def name(self) -> str:
        raise NotImplementedError

    # ------------------------------------------------------------ small things

    def _send(self, to: str, message: Message) -> None:
        self._now_out.append(Send(to, message))

    def _answer(self, message: Message) -> None:
        """Answer the coordinator, and remember the answer."""
        self._answered = message
        self._send(COORDINATOR, message)

    def _compute(self, kind: str, job: object) -> None:
        self._now_out.append(Compute(f"{kind} {self.incarnation} {self.generation} {self.step + 1}", job))

    def _refuse(self, source: str, message: Message, reason: str) -> None:
        generation, step = getattr(message, "generation", 0), getattr(message, "step", 0)
        what = type(message).__name__
        self._now_out.append(Record(Refused(what, source, 0, generation, step, reason, self.generation)))

    # ------------------------------------------------------------ joining

    def _present(self) -> None:
        """The link is up, or nobody answered: say who this is, and say again what may have been lost."""
        if self.incarnation == 0:
            self._send(COORDINATOR, Join(self.number, self.launch, self._address, self._numerics))
            self._now_out.append(SetTimer("join", JOIN_RETRY_MS))
            return
        self._send(
            COORDINATOR, Standing(self.incarnation, self.launch, self._address, self.generation, self.step)
        )  # fmt: skip
        if self._data is None:
            if not self._opening and len(self._blob) == self._blob_before:  # nothing came in since
                self._send(COORDINATOR, WantData(self.incarnation, len(self._blob)))
            self._blob_before = len(self._blob)
            self._now_out.append(SetTimer("join", JOIN_RETRY_MS))
        elif self._answered is not None:
            self._send(COORDINATOR, self._answered)

    def _welcome(self, message: Welcome) -> None:
        if self.incarnation != 0:
            return
        try:
            config = self._read_config(message.config_json)
        except UNREADABLE as error:
            self._now_out.append(Stop("refused", f"the run's configuration cannot be read: {error!r}"))
            return
        self.incarnation, self.generation = message.incarnation, message.generation
        self._now_out.append(Identify(message.incarnation))
        if self._data is not None and self._config == config:
            self._data_held()
        else:
            self._config, self._data = config, None
            self._send(COORDINATOR, WantData(self.incarnation, 0))

    def _data_part(self, part: DataPart) -> None:
        if self._data is not None or self._opening or part.offset != len(self._blob):
            return
        self._blob += part.data
        if len(self._blob) < part.total:
            self._send(COORDINATOR, WantData(self.incarnation, len(self._blob)))
        else:
            self._opening = True
            self._compute("data", self._open_job(bytes(self._blob)))

    def _data_held(self) -> None:
        assert self._data is not None
        self._now_out.append(CancelTimer("join"))
        self._answer(DataHeld(self.incarnation, self.config.dataset_sha256, self._data.numerics))

    def _turned(self, message: Turned) -> None:
        if not message.fenced:
            self._now_out.append(Stop("refused", message.reason))
        elif self.incarnation == message.incarnation != 0:
            self._now_out.append(Note(f"fenced: {message.reason}; joining again with fresh state"))
            self.incarnation = 0
            self._reset()
            self._now_out.append(Identify(0))
            self._present()

    @property
    def config(self) -> ConfigT:
        assert self._config is not None
        return self._config
