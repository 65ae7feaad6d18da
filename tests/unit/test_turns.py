"""Whose turn it is: priority, then the tenants by turns, then short before long, but nobody waits for ever."""

from uuid import UUID, uuid4

from docmill.core.turns import PATIENCE_MS, Turns, Waiting, patience_ms

MB = 1024 * 1024


def waiting(tenant: str = "acme", *, size: int = 0, priority: int = 0) -> Waiting:
    return Waiting(uuid4(), priority=priority, tenant=tenant, size=size)


def order(*came: Waiting, apart_ms: int = 0) -> list[Waiting]:
    turns = Turns()
    for n, one in enumerate(came):
        turns.add(one, now_ms=n * apart_ms)
    by_id: dict[UUID, Waiting] = {one.attempt_id: one for one in came}
    ordered = []
    while turns:
        ordered.append(by_id[turns.take()])
    return ordered


def test_first_come_first_served() -> None:
    came = [waiting() for _ in range(5)]

    assert came == order(*came)


def test_the_higher_priority_goes_first() -> None:
    low, plain, high = waiting(priority=-5), waiting(), waiting("other", priority=7)

    assert [high, plain, low] == order(low, plain, high)


def test_a_flood_of_one_tenant_does_not_delay_the_first_of_another() -> None:
    flood = [waiting("flood") for _ in range(1000)]
    first, second = waiting("small"), waiting("small")

    assert [flood[0], first, flood[1], second, flood[2]] == order(*flood, first, second)[:5]


def test_who_comes_back_goes_to_the_end_of_the_round() -> None:
    turns = Turns()
    a, b, again = waiting("a"), waiting("b"), waiting("a")
    turns.add(a, now_ms=0)
    turns.add(b, now_ms=0)
    assert a.attempt_id == turns.take()
    turns.add(again, now_ms=1)

    assert [b.attempt_id, again.attempt_id] == [turns.take(), turns.take()]


def test_short_documents_pass_long_ones_of_their_tenant() -> None:
    long, short = waiting(size=50 * MB), waiting(size=20_000)

    assert [short, long] == order(long, short, apart_ms=60_000)


def test_a_long_document_is_passed_only_for_so_long() -> None:
    long = waiting(size=2000 * MB)
    stream = [waiting(size=1000) for _ in range(40)]

    place = order(long, *stream, apart_ms=60_000).index(long)

    assert PATIENCE_MS == patience_ms(long.size)
    assert PATIENCE_MS // 60_000 == place + 1
