"""Statements in both tongues, alone and together."""

from docmill.adapters.sql.statement import Bulk, Statement, Together

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


def test_a_change_of_many_rows_is_one_statement_there_and_one_for_each_here() -> None:
    move = Bulk("UPDATE places SET x = :x, at_ms = {now} {rows} WHERE id = :id RETURNING id", numbers="x")
    tell = Bulk("INSERT INTO notes (id, text) SELECT id, :text FROM people {and_rows} WHERE name = :name")

    assert "SET x = v._x" in move.postgres
    assert "FROM unnest(CAST($1 AS BIGINT[]), CAST($2 AS TEXT[])) AS v(_x, _id) WHERE id = v._id" in move.postgres
    assert "WHERE id = :id RETURNING id" in move.sqlite
    assert "unnest" not in move.sqlite + tell.sqlite
    assert "FROM people , unnest(CAST($1 AS TEXT[]), CAST($2 AS TEXT[])) AS v(_text, _name)" in tell.postgres
    both = Together([move.of([{"id": "a", "x": 1}, {"id": "b", "x": 2}]), tell.of([{"name": "n", "text": "t"}])])
    assert [[1, 2], ["a", "b"], ["t"], ["n"]] == both.values
    assert "CAST($3 AS TEXT[])" in both.postgres
