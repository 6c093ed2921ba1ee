"""Only what the processes of one engine have mapped is theirs to remove."""

from __future__ import annotations

from pathlib import Path

from tide_cli.supervisor.shared_memory import load_tables, remove_tables

MAPS = """\
55d0-55d1 r-xp 00000000 08:01 10 /usr/bin/python3
7f01-7f02 rw-s 00000000 00:1a 11 {table}
7f03-7f04 rw-s 00000000 00:1a 12 /dev/shm/sem.mp-x
7f05-7f06 rw-s 00000000 00:1a 13 /dev/shm/sglang_loads_of_no_one.shm (deleted)
"""


def test_tables_of_two_processes(tmp_path: Path) -> None:
    for pid, name in ((1, "a_1"), (2, "a_1"), (3, "b_2")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "maps").write_text(MAPS.format(table=f"/dev/shm/sglang_loads_{name}.shm"))
    assert load_tables([1, 2, 99], proc=tmp_path) == {Path("/dev/shm/sglang_loads_a_1.shm")}


def test_what_is_gone_or_kept_from_us_is_no_error(tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.write_text("")
    remove_tables([table, tmp_path / "gone", tmp_path])
    assert not table.exists()
    assert tmp_path.is_dir()
