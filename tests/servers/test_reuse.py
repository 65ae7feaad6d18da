from support.servers import PostgresAddress, RedisAddress, Running, S3Address


def test_nothing_named_means_nothing_to_reuse() -> None:
    assert Running() == Running.taken_from({"DATABASE_URL": "sqlite:///x.db", "AWS_ACCESS_KEY_ID": "alone"})


def test_the_usual_names_are_taken_out_of_the_environment() -> None:
    environment = {
        "DATABASE_URL": "postgresql://me@db/app",
        "REDIS_URL": "redis://cache/0",
        "AWS_ENDPOINT_URL": "http://objects:9000",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "HOME": "/home/me",
    }

    running = Running.taken_from(environment)

    assert PostgresAddress("postgresql://me@db/app") == running.postgres
    assert RedisAddress("redis://cache/0") == running.redis
    assert S3Address("http://objects:9000", "key", "secret") == running.s3
    assert {"HOME": "/home/me"} == environment


def test_our_own_names_go_first() -> None:
    running = Running.taken_from(
        {
            "DATABASE_URL": "postgresql://production/app",
            "DOCMILL_TEST_DATABASE_URL": "postgresql://spare/app",
            "DOCMILL_TEST_S3_URL": "http://key:s%2Fcret@objects:9000/spare",
        }
    )

    assert PostgresAddress("postgresql://spare/app") == running.postgres
    assert S3Address("http://objects:9000", "key", "s/cret", bucket="spare") == running.s3
