"""Statements in both tongues, alone and together."""

from docmill.adapters.sql.statement import Statement, Together

MOVE = Statement("UPDATE places SET x = :x, at_ms = {now} WHERE id = :id RETURNING id")
NOTE = Statement("INSERT INTO notes (id, text, again) VALUES (:id, :text, :text)")


def test_names_become_numbers_and_gaps_are_filled() -> None:
    assert "INSERT INTO notes (id, text, again) VALUES ($1, $2, $2)" == NOTE.postgres
    assert "INSERT INTO notes (id, text, again) VALUES (:id, :text, :text)" == NOTE.sqlite
    assert "{now}" not in MOVE.postgres + MOVE.sqlite


def test_together_is_one_statement_whose_numbers_go_on() -> None:
    both = Together([MOVE(x=1, id=2), NOTE(id=3, text="a"), NOTE(id=4, text="b")])

    assert [1, 2, 3, "a", 4, "b"] == both.values
    assert both.postgres.startswith(
        "WITH also0 AS (INSERT INTO notes (id, text, again) VALUES ($3, $4, $4)), "
        "also1 AS (INSERT INTO notes (id, text, again) VALUES ($5, $6, $6)) UPDATE places SET x = $1"
    )


def test_one_alone_is_together_as_it_stands() -> None:
    assert MOVE.postgres == Together([MOVE(x=1, id=2)]).postgres
