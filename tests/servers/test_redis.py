import contextlib

import pytest
from redis import Redis as Client
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError

from support.servers import Redis, RedisAddress


def test_it_answers_over_tcp(redis_url: str) -> None:
    with contextlib.closing(Client.from_url(redis_url)) as client:
        assert client.ping()
        client.set("greeting", "你好")
        assert "你好" == client.get("greeting").decode()


def test_a_database_is_empty_again_afterwards_and_others_are_left_alone(redis_server: RedisAddress) -> None:
    with redis_server.database() as mine, contextlib.closing(Client.from_url(mine)) as client:
        client.set("mine", 1)
        with redis_server.database() as other, contextlib.closing(Client.from_url(other)) as other_client:
            assert other != mine
            other_client.set("other", 1)
        assert [b"mine"] == client.keys()
    with contextlib.closing(Client.from_url(mine)) as client:
        assert 0 == client.dbsize()


def test_a_private_server_that_was_killed_comes_back_empty() -> None:
    with Redis() as server, contextlib.closing(Client.from_url(server.url)) as client:
        client.set("volatile", 1)

        server.kill()
        with pytest.raises(RedisConnectionError):
            client.ping()
        server.start()

        assert 0 == client.dbsize()


def test_the_password_is_asked_for() -> None:
    with Redis() as server:
        wrong = Client(host="127.0.0.1", port=server.port, password="wrong")
        with contextlib.closing(wrong), pytest.raises(AuthenticationError):
            wrong.ping()
