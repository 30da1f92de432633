"""Options of the commands that change a store by a plan, and the question that these commands ask.

The parameters of a command are read from its annotations, so a command imports them at run time.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from .declared import Exit, Option, Options, bad_parameter, flag, option
from .exit_codes import ExitCode
from .options import Common, keep_journal_in, say
from .progress import SCREEN
from .terminal import colour_wanted, escape, escape_lines, is_terminal
from .terminal_page import on_terminal

if TYPE_CHECKING:
    from ..store.disk.files import Files
    from ..store.disk.layout import Layout
    from ..store.findings.next_commands import Given

Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")]
Wait = Annotated[float, Option("--wait", metavar="SECONDS", min=0, help="Wait SECONDS for the store's lock.")]
FollowLinks = Annotated[bool, Option("--follow-links", help="Allow directories of STORE to be links to other places.")]


def can_ask() -> bool:
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


class ChangeOptions(Options):
    """Options of a command that changes a store and asks first."""

    yes: Yes = False
    wait: Wait = 0
    follow_links: FollowLinks = False


class Change(Options):
    """Options of a command that makes a plan, and carries it out with `--apply`."""

    apply: bool = flag("--apply", help="Carry out the plan.")
    yes: Yes = False
    wait: Wait = 0
    journal: Path | None = option(
        "--journal", metavar="DIR", help="Keep the original bytes in DIR, not in STORE/.mqstore."
    )
    follow_links: FollowLinks = False

    def check(self) -> None:
        """Raises BadParameter if a confirmation is needed and nobody can be asked."""
        if self.asks and not can_ask():
            raise bad_parameter("without a terminal --apply needs --yes")

    @property
    def asks(self) -> bool:
        """Whether the plan has to be confirmed."""
        return self.apply and not self.yes

    def open(self, store: Path, common: Common) -> Layout:
        """The layout of a store, with the place of its journal. Without `--apply` a growing log ends where it ends now.

        Raises NotAStore, Missing, Unreadable.
        """
        from ..store.disk.layout import Layout

        layout = Layout.open(store, common.config())
        if self.journal is not None:
            keep_journal_in(layout, self.journal)
        if not self.apply:
            from ..store.search.store import hold_still

            hold_still(layout)
        return layout

    def given(self, broker_version: str | None, common: Common) -> Given:
        """The options that a proposed command repeats."""
        return common.given(broker_version, self.journal, self.follow_links)


def agree(question: str, plan: str, common: Common, code: ExitCode | None = None) -> None:
    """Print the plan and the question on stderr, and wait for the answer. Raises Exit if it is no.

    code: the plan begins with a verdict, and this is the verdict's exit code: that of the command without `--apply`. A
    no ends the command with it, too, so that a script does not take that for success.
    """
    page = escape_lines(plan)
    if code is not None:
        page = on_terminal(page, code, colour=colour_wanted(sys.stderr, common.no_color))
    SCREEN.tell(f"{page}\n\n")
    if not _is_yes(escape(question)):
        say("nothing changed")
        raise Exit(ExitCode.NO if code is None else code)


def _is_yes(question: str) -> bool:
    """Ask until there is an answer; Ctrl-D means no. typer's own prompt would put a blank on stdout, into the data."""
    while True:
        SCREEN.tell(f"{question} [y/N]: ")
        try:
            line = sys.stdin.readline()
        except BaseException:
            SCREEN.tell("\n")
            raise
        word = line.strip().lower()
        if word in ("y", "yes"):
            return True
        if not line:
            SCREEN.tell("\n")
        if word in ("", "n", "no"):
            return False


def files_of(layout: Layout, follow_links: bool) -> Files:
    """The writer of a store's files, which changes nothing outside of the store. Raises Refused."""
    from ..store.disk.files import confined

    return confined(layout, follow_links=follow_links)
