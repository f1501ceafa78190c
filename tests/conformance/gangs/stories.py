"""All recordings of the project's own, by the sentence that each of them tells."""

from tests.conformance.gangs import recordings, recordings_more, recordings_named
from tests.conformance.gangs.recordings import Recording

STORIES: dict[str, Recording] = {
    **recordings.jobs(),
    **recordings.jobsets(),
    **recordings_more.ray_clusters(),
    **recordings_more.training_jobs(),
    **recordings_more.leader_worker_sets(),
    **recordings_named.named_groups(),
    **recordings_named.partly_done(),
    **recordings_named.named_replicas(),
    **recordings_named.halves(),
    **recordings_named.nobodys(),
}
