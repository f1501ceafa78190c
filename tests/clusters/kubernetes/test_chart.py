"""The chart with the real Helm and the real API server: linted, rendered, installed, changed and taken away again."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from kaiwo import __version__
from kaiwo.cli.verb_table import kaiwo as program
from kaiwo.cli.verbs.start.install import IMAGE
from kaiwo.clusters.kubernetes.agent_tokens import AUDIENCE
from kaiwo.clusters.kubernetes.watch.operator_kinds import OWNERS
from kaiwo.clusters.kubernetes.webhooks.certificate_secret import AUTHORITY
from kaiwo.manifests.policy_file import read_policy
from kaiwo.model.policy import Policy
from kaiwo.runtime.plugin_worker.plugin_settings import read_plugin_settings
from tests.clusters.kubernetes.chart import (
    ALL_ON,
    CHART,
    Json,
    helm,
    names,
    one,
    rendered,
    uninstall,
    wait_until_unguarded,
)
from tests.conftest import ROOT
from tests.controlplane.plane import MissingError, Plane, find_programs
from tests.docs.markdown import code_words, table

FOR_OTHERS = tuple(f"--set={name}.enabled=true" for name in ("serviceMonitor", "dashboards", "prometheusRules"))
MANIFESTS = ROOT / "deploy" / "manifests"
FRESH = "deploy/manifests does not say what the chart says; run deploy/render.sh"


@pytest.fixture
def helmed() -> None:
    """Helm is enough for these."""
    try:
        find_programs("helm")
    except MissingError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("helmed")
@pytest.mark.parametrize("options", [(), (*ALL_ON, *FOR_OTHERS)], ids=["default", "all"])
def test_the_linter_finds_nothing(options: tuple[str, ...]) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART), *options)


@pytest.mark.usefixtures("helmed")
@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("replicas=-1", "/replicas"),
        ("replicas=0", "/replicas"),
        ("schedulerName=default-scheduler", "/schedulerName"),
        ("replica=1", "replica"),
        ("api.port=80", "/api/port"),
        ("image.repository=", "image.repository is not set, and no image of Kaiwo is published yet"),
        ("image.repository=no repository", "/image/repository"),
        ("agent.kubeletDir=kubelet", "/agent/kubeletDir"),
        ("api.agentsPort=443", "/api/agentsPort"),
        ("webhooks.port=7600", "api.port and webhooks.port are both 7600"),
        ("partitions.policy=maybe", "/partitions/policy"),
        ("journal.sizeLimit=much", "/journal/sizeLimit"),
        ("serviceMonitor.enabled=true", "needs api.tokenSecret"),
        ("policy.placment=pack", "placment"),
        ("plugins.allowed[0].name=Not A Name", "/plugins/allowed/0/name"),
        ("plugins.allowed[0].sha256=12", "/plugins/allowed/0"),
        ("plugins.allow=all", "allow"),
        ("policy.victimOrder=oldest", "/policy/victimOrder"),
    ],
)
def test_values_that_make_no_sense_are_refused(option: str, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        rendered(f"--set={option}")


@pytest.mark.usefixtures("helmed")
@pytest.mark.parametrize("word", ["on", "off", '"on"', "'off'", "dry-run"])
def test_the_policy_of_partitions_may_be_a_word_that_yaml_takes_for_a_boolean(word: str, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(f"partitions: {{policy: {word}}}\n")
    (container,) = _pod_spec(rendered(f"--values={values}"), "Deployment")["containers"]
    bare = word.strip("'\"")
    assert [each for each in container["args"] if each.startswith("--partitions=")] == [f"--partitions={bare}"]


@pytest.mark.usefixtures("helmed")
def test_the_plain_manifests_are_those_of_the_chart(tmp_path: Path) -> None:
    subprocess.run([ROOT / "deploy" / "render.sh", tmp_path], check=True, capture_output=True)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text() for path in MANIFESTS.iterdir()}, FRESH


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


@pytest.mark.parametrize(("file", "kind"), [("scheduler.yaml", "Deployment"), ("agent.yaml", "DaemonSet")])
def test_what_the_containers_run_can_be_typed(file: str, kind: str) -> None:
    (container,) = _pod_spec(_plain(file), kind)["containers"]
    command, verb = container["command"]
    assert command == "kaiwo"
    with click.Context(program, info_name="kaiwo") as parent:
        found = program.get_command(parent, verb)
        assert found is not None
        found.make_context(verb, list(container["args"]), parent=parent)


@pytest.mark.usefixtures("helmed")
def test_a_release_with_dots_in_its_name_has_services_that_the_server_takes() -> None:
    documents = [each for each in yaml.safe_load_all(helm("template", "lab.gpu", str(CHART))) if each]
    assert {name for kind, name in names(documents) if kind == "Service"} == {"lab-gpu-kaiwo", "lab-gpu-kaiwo-webhooks"}


def test_names_and_ports_agree_with_each_other() -> None:
    documents = _plain("scheduler.yaml")
    labels = one(documents, "Deployment")["spec"]["template"]["metadata"]["labels"]
    (container,) = _pod_spec(documents, "Deployment")["containers"]
    port, webhooks, agents = container["ports"]
    selectors = [
        one(documents, "Service")["spec"]["selector"],
        one(documents, "Service", "kaiwo-webhooks")["spec"]["selector"],
        one(documents, "Deployment")["spec"]["selector"]["matchLabels"],
        one(documents, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one(documents, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ]
    assert all(selector.items() <= labels.items() for selector in selectors)
    assert [each["targetPort"] for each in one(documents, "Service")["spec"]["ports"]] == [port["name"], agents["name"]]
    assert one(documents, "Service", "kaiwo-webhooks")["spec"]["ports"][0]["targetPort"] == webhooks["name"]
    allowed = [each["port"] for rule in one(documents, "NetworkPolicy")["spec"]["ingress"] for each in rule["ports"]]
    assert allowed == [each["containerPort"] for each in (port, agents, webhooks)]
    assert f"--port={port['containerPort']}" in container["args"]
    assert f"--webhook-port={webhooks['containerPort']}" in container["args"]
    assert f"--agents-port={agents['containerPort']}" in container["args"]
    assert "--host-name=kaiwo.kaiwo-system.svc" in container["args"]
    mounted = {each["name"] for each in container["volumeMounts"]}
    assert mounted == {each["name"] for each in _pod_spec(documents, "Deployment")["volumes"]}


def test_an_agent_sees_no_other_files_of_its_node_than_it_uses() -> None:
    """The kubelet's whole folder has the Secrets and volumes of every pod there."""
    pod = _pod_spec(_plain("agent.yaml"), "DaemonSet")
    folders = {each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each}
    kubelet = "/var/lib/kubelet"
    assert folders == {"/dev", "/var/lib/kaiwo/agent", f"{kubelet}/device-plugins", f"{kubelet}/pod-resources"}
    mounts = {each["mountPath"]: each.get("readOnly", False) for each in pod["containers"][0]["volumeMounts"]}
    assert folders - {"/dev"} <= set(mounts)
    assert mounts[f"{kubelet}/pod-resources"]
    assert mounts["/node/dev"]  # their names, which it may not open
    assert "/dev" not in mounts


NO_RIGHTS = {
    "runAsUser": 0,
    "readOnlyRootFilesystem": True,
    "privileged": False,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
PRIVILEGED = {"runAsUser": 0, "readOnlyRootFilesystem": True, "privileged": True}


@pytest.mark.parametrize(
    ("values", "sees_processes", "rights", "said"),
    [
        ((), False, NO_RIGHTS, {"--no-mps", "--no-processes"}),
        (("agent.processes=true",), True, NO_RIGHTS, {"--no-mps", "--processes"}),
        (("agent.mps=true",), True, PRIVILEGED, {"--mps", "--processes"}),
    ],
)
def test_an_agent_has_only_the_rights_that_its_tasks_need(
    values: tuple[str, ...], sees_processes: bool, rights: Json, said: set[str]
) -> None:
    options = [word for value in ("agent.enabled=true", *values) for word in ("--set", value)]
    pod = _pod_spec(rendered(*options), "DaemonSet")
    (agent,) = pod["containers"]
    assert (pod.get("hostPID", False), agent["securityContext"]) == (sees_processes, rights)
    assert not {"hostNetwork", "hostIPC"} & set(pod)
    assert said == {word for word in agent["args"] if word.removeprefix("--").removeprefix("no-") in MPS_OR_PROCESSES}
    writable = [each["mountPath"] for each in agent["volumeMounts"] if each["name"] == "dev" and "readOnly" not in each]
    assert writable == (["/dev"] if "agent.mps=true" in values else [])


MPS_OR_PROCESSES = ("mps", "processes")


def test_nvidias_runtime_gives_an_agent_the_gpus_without_further_rights() -> None:
    options = ("--set", "agent.enabled=true", "--set", "agent.runtimeClassName=nvidia")
    for more, libraries in (((), "utility"), (("--set", "agent.mps=true"), "utility,compute")):
        (agent,) = _pod_spec(rendered(*options, *more), "DaemonSet")["containers"]
        said = {each["name"]: each.get("value") for each in agent["env"]}
        assert said["NVIDIA_VISIBLE_DEVICES"] == "all"
        assert said["NVIDIA_DRIVER_CAPABILITIES"] == libraries


def test_an_agent_reports_where_the_scheduler_listens_with_a_token_that_it_takes() -> None:
    documents = _plain("scheduler.yaml") + _plain("agent.yaml")
    (scheduler,) = _pod_spec(documents, "Deployment")["containers"]
    pod = _pod_spec(documents, "DaemonSet")
    (agent,) = pod["containers"]
    said = dict(argument.removeprefix("--").partition("=")[::2] for argument in agent["args"])
    heard = dict(argument.removeprefix("--").partition("=")[::2] for argument in scheduler["args"])
    assert said["server"] == f"https://kaiwo.kaiwo-system.svc:{heard['agents-port']}"
    assert heard["agent-account"] == f"kaiwo-system:{pod['serviceAccountName']}"
    (volume,) = (each for each in pod["volumes"] if "projected" in each)
    (folder,) = (each["mountPath"] for each in agent["volumeMounts"] if each["name"] == volume["name"])
    token, trusted = volume["projected"]["sources"]
    assert token["serviceAccountToken"]["audience"] == AUDIENCE
    assert said["token-file"] == f"{folder}/{token['serviceAccountToken']['path']}"
    assert trusted["configMap"]["name"] == heard["agents"]
    assert one(documents, "ConfigMap", heard["agents"])
    assert said["ca-file"] == f"{folder}/{AUTHORITY}" == f"{folder}/{trusted['configMap']['items'][0]['path']}"
    ways = one(documents, "NetworkPolicy", "kaiwo-agent")["spec"]["egress"]
    assert [{"protocol": "TCP", "port": int(heard["agents-port"])}] in [way["ports"] for way in ways]


@pytest.mark.usefixtures("helmed")
def test_the_managers_profiles_are_one_config_map_and_no_other() -> None:
    where = "partitions.dcmConfigMap.namespace=kube-amd-gpu,partitions.dcmConfigMap.name=dcm,partitions.policy=on"
    documents = rendered(f"--set={where}")
    role = one(documents, "Role", "kaiwo-partitions")
    assert role["metadata"]["namespace"] == "kube-amd-gpu"
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["dcm"], "verbs": ["get", "patch"]}
    ]
    (container,) = _pod_spec(documents, "Deployment")["containers"]
    assert {"--partitions=on", "--dcm-config=kube-amd-gpu/dcm"} <= set(container["args"])


@pytest.mark.usefixtures("helmed")
def test_without_agents_or_without_certificates_nobody_listens_for_them() -> None:
    for option in ("agent.enabled=false", "agent.enabled=true,webhooks.enabled=false"):
        text = yaml.safe_dump_all(rendered(f"--set={option},people.enabled=false"))
        for word in ("tokenreviews", "subjectaccessreviews", "kaiwo-agents", "--agents", "--server=", "7601"):
            assert word not in text, (option, word)


def test_the_page_says_which_rights_the_scheduler_has() -> None:
    said = {
        (resource, verb)
        for row in table(ROOT / "docs" / "install.md", "object")
        for resource in code_words(row[0])
        for verb in code_words(row[1])
    }
    above = {kind.lower() + "s" for _, kind in OWNERS}
    component = "app.kubernetes.io/component"
    documents = [each for each in _plain("scheduler.yaml") if each["metadata"]["labels"].get(component) != "people"]
    rules = [rule for each in documents if each["kind"] in ("ClusterRole", "Role") for rule in each["rules"]]
    assert said == {
        (resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]
        if resource not in above
    }  # fmt: skip


@pytest.mark.usefixtures("helmed")
def test_the_allowed_plugins_reach_the_scheduler_by_name_and_hash(tmp_path: Path) -> None:
    values, written = tmp_path / "values.yaml", tmp_path / "plugins.yaml"
    allowed = [
        {
            "name": "prefer-cheap-nodes",
            "sha256": "5d" * 32,
            "path": "/opt/kaiwo/plugins/cheap",
            "config": {"label": "x"},
        },
        {"name": "start-rate", "config": {"podsPerMinute": 60}},
    ]
    values.write_text(yaml.safe_dump({"plugins": {"allowed": allowed, "volume": {"configMap": {"name": "code"}}}}))
    documents = rendered(f"--values={values}")
    written.write_text(one(documents, "ConfigMap", "kaiwo-plugins")["data"]["plugins.yaml"])
    first, second = read_plugin_settings(str(written))
    assert (first.name, first.sha256, first.run, first.config) == (
        "prefer-cheap-nodes", "5d" * 32, "confined", {"label": "x"},
    )  # fmt: skip
    assert (second.name, second.sha256, second.config) == ("start-rate", "", {"podsPerMinute": 60})
    pod = one(documents, "Deployment", "kaiwo")["spec"]["template"]["spec"]
    mounts = {each["name"]: each for each in pod["containers"][0]["volumeMounts"]}
    assert f"--plugins={mounts['plugins']['mountPath']}/plugins.yaml" in pod["containers"][0]["args"]
    assert first.path.startswith(mounts["plugin-code"]["mountPath"] + "/")
    assert mounts["plugin-code"]["readOnly"] is True
    assert {"name": "plugin-code", "configMap": {"name": "code"}} in pod["volumes"]


@pytest.mark.usefixtures("helmed")
def test_without_plugins_the_chart_names_none() -> None:
    assert "plugins" not in json.dumps([each for each in rendered() if each["kind"] != "CustomResourceDefinition"])


@pytest.mark.usefixtures("helmed")
def test_a_policy_reaches_the_scheduler_as_it_was_written() -> None:
    wishes = ("victimOrder=youngest", "pastUse.halfLife=7d", "ageBoost=0.5")
    documents = rendered(*(f"--set=policy.{wish}" for wish in wishes))
    policy = read_policy(one(documents, "ConfigMap", "kaiwo-policy")["data"]["policy.yaml"])
    assert policy == Policy(victim_order="youngest", past_use_half_life_s=7 * 86_400, age_boost_milli=500)
    pod = one(documents, "Deployment")["spec"]["template"]["spec"]
    (mounted,) = [each["mountPath"] for each in pod["containers"][0]["volumeMounts"] if each["name"] == "policy"]
    assert f"--policy={mounted}/policy.yaml" in pod["containers"][0]["args"]
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["policy"]["properties"]
    rows = {
        name.partition(".")[0] for row in table(ROOT / "docs" / "policy.md", "field") for name in code_words(row[0])
    }
    assert set(schema) == {name for name in rows if name}


@pytest.mark.usefixtures("helmed")
def test_prometheus_gets_the_token_from_the_same_secret() -> None:
    documents = rendered(*ALL_ON, "--set=serviceMonitor.enabled=true")
    spec = one(documents, "ServiceMonitor")["spec"]
    assert spec["endpoints"][0]["authorization"]["credentials"] == {"name": "kaiwo-token", "key": "metrics-token"}
    labels = one(documents, "Service")["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    pod = _pod_spec(documents, "Deployment")
    (secret,) = [each["secret"] for each in pod["volumes"] if "secret" in each]
    assert secret["secretName"] == "kaiwo-token"
    assert {item["path"] for item in secret["items"]} == {"token", "metrics-token"}
    (copy,) = pod["initContainers"]
    assert copy["command"][-3:] == ["/etc/kaiwo/token", "/etc/kaiwo/metrics-token", "/var/lib/kaiwo/"]


def test_helm_installs_changes_and_removes_it(plane: Plane, namespace: str) -> None:
    where = f"--namespace={namespace}"
    helm("install", "kaiwo", str(CHART), where, plane=plane)
    try:
        assert _there(plane, namespace) == names(_namespaced(rendered()))
        assert "kaiwo-node-leases" in plane.kubectl("get", "roles", f"--namespace={LEASES}", "-o", "name")
        helm("upgrade", "kaiwo", str(CHART), where, *ALL_ON, plane=plane)
        assert _there(plane, namespace) == names(_namespaced(rendered(*ALL_ON)))
    finally:  # its webhooks would refuse every queue of the tests that come after
        uninstall(plane, namespace)
    assert _there(plane, namespace) == set()
    assert "kaiwo-node-leases" not in plane.kubectl("get", "roles", f"--namespace={LEASES}", "-o", "name")
    assert f"{namespace}:kaiwo" not in plane.kubectl("get", "clusterroles,clusterrolebindings", "-o", "name")
    assert "kaiwoqueues.kaiwo.ai" in plane.kubectl("get", "crd", "-o", "name")  # queues outlive the scheduler


LEASES = "kube-node-lease"  # Kubernetes keeps the Leases of nodes there
# The rules of the `restricted` standard, as the API server names them in a refusal.
RESTRICTED = (
    "host namespaces", "hostPID", "privileged", "capabilities", "allowPrivilegeEscalation", "hostPath", "hostPort",
    "runAsNonRoot", "runAsUser=0", "seccompProfile", "seLinuxOptions", "procMount",
)  # fmt: skip


@pytest.mark.usefixtures("helmed")
def test_the_scheduler_passes_the_strictest_pod_rules_and_the_agent_says_that_it_cannot(
    plane: Plane, namespace: str
) -> None:
    plane.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    documents = rendered(*ALL_ON)
    assert "created" in _try_pod(plane, namespace, _pod_spec(documents, "Deployment"))
    refused = _try_pod(plane, namespace, _pod_spec(documents, "DaemonSet", "kaiwo-agent"))
    assert "violates PodSecurity" in refused
    # What the kubelet's sockets ask for, and nothing else.
    rules = refused.partition('"restricted:latest": ')[2]
    assert [rule for rule in RESTRICTED if rule in rules] == ["hostPath", "runAsNonRoot", "runAsUser=0"]
    with_mps = rendered(*ALL_ON, "--set", "agent.mps=true")
    refused = _try_pod(plane, namespace, _pod_spec(with_mps, "DaemonSet", "kaiwo-agent"))
    assert "privileged (" in refused
    assert "hostPID=true" in refused


@pytest.fixture
def installed(plane: Plane) -> Iterator[str]:
    """What `kaiwo install` prints; taken away again at the end."""
    text = _kaiwo_install("--dry-run", "--agent", "--image", "somewhere.example/kaiwo@sha256:" + "0" * 64).stdout
    yield text
    # The kinds stay: other tests use them. So does the namespace: nobody here would end its deletion.
    mine = [each for each in yaml.safe_load_all(text) if each and each["kind"] not in KEPT]
    plane.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", text=yaml.safe_dump_all(mine))
    wait_until_unguarded(plane)


KEPT = ("CustomResourceDefinition", "Namespace")


def test_kubectl_takes_what_install_prints(plane: Plane, installed: str) -> None:
    plane.kubectl("apply", "-f", "-", text=installed)
    again = plane.kubectl("apply", "-f", "-", text=installed).splitlines()
    # kubectl replaces the spec of a budget whole, and calls that a change every time.
    assert [line for line in again if not line.endswith("unchanged")] == ["poddisruptionbudget.policy/kaiwo configured"]
    documents = [each for each in yaml.safe_load_all(installed) if each]
    assert len(again) == len(documents)
    assert {each["kind"] for each in documents} >= {"CustomResourceDefinition", "Deployment", "DaemonSet"}
    for kind, name in (("Deployment", "kaiwo"), ("DaemonSet", "kaiwo-agent")):
        (container,) = _pod_spec(documents, kind, name)["containers"]
        assert container["image"].startswith("somewhere.example/kaiwo@sha256:")


def test_the_page_says_how_to_look_before_one_installs(plane: Plane) -> None:
    """On a cluster that has never seen Kaiwo; kubectl ends with 1 where something would change, with more when lost."""
    plane.kubectl("delete", "namespace", "kaiwo-system", "--ignore-not-found", "--wait=false")
    plane.kubectl("replace", "--raw=/api/v1/namespaces/kaiwo-system/finalize", "-f", "-", text=GONE, check=False)
    text = (ROOT / "docs" / "install.md").read_text().partition("## Without Helm")[2]
    lines = text.partition("```sh\n")[2].partition("```")[0].splitlines()
    assert any("kubectl diff" in line for line in lines)
    programs = os.pathsep.join((str(plane.programs), str(Path(sys.executable).parent), os.environ["PATH"]))
    for line in lines:
        if "apply" not in line:
            asked = subprocess.run(
                ["bash", "-c", line],
                env=os.environ | {"PATH": programs, "KUBECONFIG": str(plane.kubeconfig)},
                capture_output=True,
                text=True,
            )
            assert asked.returncode == ("diff" in line), asked.stderr[-500:]


GONE = '{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kaiwo-system"}, "spec": {"finalizers": []}}'


def test_install_prints_every_kind_and_only_the_scheduler_when_not_asked_for_more() -> None:
    documents = [each for each in yaml.safe_load_all(_kaiwo_install("--dry-run", "--image", IMAGE).stdout) if each]
    kinds = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "deploy" / "crds").iterdir())]
    assert documents == kinds + _plain("scheduler.yaml")


@pytest.mark.slow
def test_a_package_made_from_the_source_package_carries_what_install_prints(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for name in ("src", "deploy"):
        leave_out = shutil.ignore_patterns("__pycache__", "static")
        shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=leave_out)
    for name in ("pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, checkout)
    _build(checkout, "sdist", tmp_path)
    (source,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(source, tmp_path / "source", filter="data")
    (unpacked,) = (tmp_path / "source").iterdir()
    _build(unpacked, "wheel", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        carried = {Path(name).name for name in file.namelist() if name.startswith("kaiwo/cli/deploy/")}
    assert carried == {path.name for folder in ("crds", "manifests") for path in (ROOT / "deploy" / folder).iterdir()}


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--dry-run",), "--image is missing. No image of Kaiwo is published yet"),
        (("--dry-run", "--image", 'x"\nhostPID: true'), "write it as"),
        (("--image", "x y"), "write it as"),
    ],
)
def test_install_refuses_what_it_cannot_do(words: tuple[str, ...], answer: str) -> None:
    done = _kaiwo_install(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert answer in done.stderr


def test_install_alone_lists_what_it_would_make() -> None:
    done = _kaiwo_install("--agent")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Nothing was changed." in done.stdout
    documents = [
        each for each in yaml.safe_load_all(_kaiwo_install("--dry-run", "--agent", "--image", IMAGE).stdout) if each
    ]
    listed = {line.split(":")[0].strip(): line for line in done.stdout.splitlines() if line.startswith("  ")}
    said = " ".join(done.stdout.split())
    for document in documents:
        assert document["kind"] in listed
        assert document["metadata"]["name"] in said


@pytest.mark.usefixtures("helmed")
def test_the_notes_and_the_page_name_the_same_way_to_the_leader(plane: Plane, namespace: str) -> None:
    said = helm("install", "kaiwo", str(CHART), f"--namespace={namespace}", "--dry-run=client", plane=plane)
    noted = [line.strip() for line in said.partition("NOTES:")[2].splitlines() if line.startswith("  ")]
    text = (ROOT / "docs" / "install.md").read_text().partition("## Check the installation")[2]
    lines = text.partition("```sh\n")[2].partition("```")[0].splitlines()
    assert [line.replace(namespace, "kaiwo-system") for line in noted] == lines


def _build(folder: Path, target: str, out: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def _kaiwo_install(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "kaiwo.cli.main", "install", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _plain(file: str) -> list[Json]:
    return [each for each in yaml.safe_load_all((MANIFESTS / file).read_text()) if each]


def _pod_spec(documents: list[Json], kind: str, name: str = "") -> Any:
    name = name or ("kaiwo-agent" if kind == "DaemonSet" else "kaiwo")
    return one(documents, kind, name)["spec"]["template"]["spec"]


def _namespaced(documents: list[Json]) -> list[Json]:
    """Those in the namespace of the release."""
    return [each for each in documents if each["metadata"].get("namespace", LEASES) != LEASES]


def _there(plane: Plane, namespace: str) -> set[tuple[str, str]]:
    kinds = "deploy,daemonset,serviceaccount,service,secret,configmap,networkpolicy,pdb,role,rolebinding"
    found = plane.kubectl("get", kinds, f"--namespace={namespace}", "-o", "yaml")
    every = [each for each in yaml.safe_load(found)["items"] if each.get("type") != "helm.sh/release.v1"]
    return {(each["kind"], each["metadata"]["name"]) for each in every} - ALWAYS


ALWAYS = {("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")}


def _try_pod(plane: Plane, namespace: str, spec: Json) -> str:
    """What the server says to this pod; nothing is kept."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tried", "namespace": namespace}, "spec": spec}
    return plane.kubectl("create", "--dry-run=server", "-f", "-", text=yaml.safe_dump(pod), check=False)


@pytest.mark.usefixtures("helmed")
def test_dashboards_and_rules_are_those_of_their_folders() -> None:
    documents = rendered(*ALL_ON, *FOR_OTHERS)
    made = one(documents, "ConfigMap", "kaiwo-dashboards")
    assert made["data"] == {path.name: path.read_text() for path in (ROOT / "deploy/grafana").glob("*.json")}
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    rules = {each["metadata"]["name"]: each["spec"] for each in documents if each["kind"] == "PrometheusRule"}
    assert rules == {
        f"kaiwo-{path.stem}": yaml.safe_load(path.read_text()) for path in (ROOT / "deploy/alerts").glob("*.yaml")
    }
