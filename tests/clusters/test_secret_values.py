"""Environment values that are marked secret: sealed wherever they are stored, plain only in their own process."""

import base64
from pathlib import Path

import pytest

from kaiwo.clusters.local import LocalCluster
from kaiwo.clusters.secret_values import KEY_FILE, SecretValues
from kaiwo.model.errors import ClusterError
from kaiwo.model.plan import Plan
from kaiwo.model.workload_record import Program, WorkloadState
from tests.clusters.kinds import log_path, some_nodes, start_of, work
from tests.waiting import run, until

SECRET = "s3cr3t-value-that-nobody-else-has"


def program(home: Path, text: str, name: str = "default/job") -> Program:
    sealed = SecretValues(home).seal(name, {"API_KEY": SECRET})
    return Program(command=("sh", "-c", text), secret_env=sealed)


def files_with(folder: Path, secret: str) -> list[str]:
    forms = {secret.encode(), base64.b64encode(secret.encode()), secret.encode("utf-16-le")}
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not path.is_socket() and any(form in path.read_bytes() for form in forms)
    ]


def test_a_value_is_opened_only_for_its_workload_and_its_variable(tmp_path: Path) -> None:
    values = SecretValues(tmp_path)
    sealed = values.seal("default/a", {"API_KEY": SECRET})
    assert SECRET not in str(sealed)
    assert values.unseal("default/a", sealed) == {"API_KEY": SECRET}
    assert SecretValues(tmp_path).unseal("default/a", sealed) == {"API_KEY": SECRET}
    for workload, given in (("default/b", sealed), ("default/a", {"OTHER": sealed["API_KEY"]})):
        with pytest.raises(ClusterError, match="cannot be read"):
            values.unseal(workload, given)
    assert values.are_same("default/a", sealed, values.seal("default/a", {"API_KEY": SECRET}))
    assert not values.are_same("default/a", sealed, values.seal("default/a", {"API_KEY": "other"}))


def test_a_changed_value_or_key_is_refused_and_the_file_is_named(tmp_path: Path) -> None:
    values = SecretValues(tmp_path)
    sealed = values.seal("default/a", {"API_KEY": SECRET})
    key = tmp_path / KEY_FILE
    assert key.stat().st_mode & 0o777 == 0o600
    whole = key.read_bytes()
    data = bytearray(base64.b64decode(sealed["API_KEY"].removeprefix("v1:")))
    data[-1] ^= 1
    with pytest.raises(ClusterError, match="cannot be read"):
        values.unseal("default/a", {"API_KEY": "v1:" + base64.b64encode(bytes(data)).decode()})
    key.write_bytes(b"too short\n")
    with pytest.raises(ClusterError, match=f"{key}, is damaged"):
        values.unseal("default/a", sealed)
    key.write_bytes(base64.b64encode(b"k" * 32))
    with pytest.raises(ClusterError, match="is not the key with which it was stored"):
        values.unseal("default/a", sealed)
    key.write_bytes(whole)
    key.chmod(0o644)
    with pytest.raises(ClusterError, match="chmod 600"):
        values.unseal("default/a", sealed)
    key.unlink()
    with pytest.raises(ClusterError, match=f"{key} does not exist; put it back"):
        values.unseal("default/a", sealed)


def test_the_process_gets_the_value_and_no_file_does(tmp_path: Path) -> None:
    async def test() -> None:
        home = tmp_path / "home"
        cluster = LocalCluster(home, some_nodes(1))
        text = f'test "$API_KEY" = {SECRET[:10]}{SECRET[10:]} && test -z "$KAIWO_SECRET_ENV" && echo right'
        hidden = text.replace(SECRET, "$(printf %s%s " + SECRET[:10] + " " + SECRET[10:] + ")")
        await cluster.work.submit([(work("job"), program(home, hidden))])
        await cluster.apply(Plan(starts=(start_of("job"),)))
        await until(lambda: cluster.record("default/job").state is WorkloadState.SUCCEEDED)
        assert Path(log_path(cluster, "default/job")).read_text() == "right\n"
        assert files_with(home, SECRET) == []
        await cluster.close()
        again = LocalCluster(home, some_nodes(1))
        assert again.record("default/job").program.secret_env.keys() == {"API_KEY"}
        await again.close()

    run(test())


def test_work_whose_key_is_lost_does_not_start_and_says_why(tmp_path: Path) -> None:
    async def test() -> None:
        home = tmp_path / "home"
        cluster = LocalCluster(home, some_nodes(1))
        await cluster.work.submit([(work("job"), program(home, "echo ran"))])
        key = (home / KEY_FILE).read_bytes()
        (home / KEY_FILE).unlink()
        await cluster.apply(Plan(starts=(start_of("job"),)))
        await until(lambda: bool(cluster.state.workloads["default/job"].workload.not_before_why))
        why = cluster.state.workloads["default/job"].workload.not_before_why
        assert str(home / KEY_FILE) in why
        assert "put it back" in why
        (home / KEY_FILE).write_bytes(key)
        (home / KEY_FILE).chmod(0o600)
        await until(lambda: not cluster.state.pods_of.get("default/job"))
        await cluster.apply(Plan(starts=(start_of("job"),)))
        await until(lambda: cluster.record("default/job").state is WorkloadState.SUCCEEDED)
        await cluster.close()

    run(test())
