// Generated from the OpenAPI document by scripts/page_types.py; change src/kaiwo/api/views/ instead.

/** One page of a listing. `next` is the cursor for `after`; empty at the end. */
export interface Page<T> {
  items: T[]
  total: number
  next: string
}

/** The result for one workload: what was done, or why not. */
export interface ActionResult {
  name: string
  done: string
  problem: Problem | null
}

/** A node's agent. */
export interface AgentView {
  node: string
  state: string
  version: string
  heard_ago_s: number
  gpus: number
  notes: string[]
}

/** One resource of a queue. -1: unlimited. */
export interface AmountView {
  quota: number
  limit: number
  weight: number
  used: number
  waiting: number
  fixed: number
  share: number
}

/** The tasks of an array that match. */
export interface ArrayView {
  tasks: number
  indices: string
  states: Record<string, number>
}

/** What happens to the owner's work on the GPUs when the reservation ends. */
export type AtEnd = 'evict' | 'keep'

/** One start of a pod. */
export interface AttemptView {
  attempt: number
  is_over: boolean
}

/** The attempts whose logs are kept, the first one first, and the workload's state. */
export interface AttemptsView {
  attempts: AttemptView[]
  state: WorkloadState
  pods: string[]
}

/** Records of the audit, the newest first. `next` is `before` of the next page; 0 at the end. */
export interface AuditPageView {
  items: AuditRecordView[]
  next: number
  count: number
  head: string
}

/** One change: who made it, and how it ended. `old` and `new` are JSON; empty: there was none. */
export interface AuditRecordView {
  n: number
  at: string
  person: string
  role: string
  credential: string
  action: string
  object: string
  old: string
  new: string
  reason: string
  outcome: string
  detail: string
}

/** One result for each name, in their order; a duplicate name has one. */
export interface BulkOutcome {
  results: ActionResult[]
  warnings: string[]
}

/** One change that would start the workload now. */
export interface ChangeView {
  kind: string
  by: string
  sentence: string
  command: string
}

/** What kind of cluster this is, and its clock. */
export interface ClusterView {
  kind: string
  name: string
  is_virtual: boolean
  speed: number
  now_s: number
  memory_promise: string
  memory_remedy: string
}

/** Whether it reads from a terminal, and the folder on the server with the socket for that. */
export interface ConsoleView {
  is_interactive: boolean
  folder: string
}

/** One scheduling cycle, as the journal keeps it. */
export interface CycleView {
  number: number
  at_s: number
  starts: number
  evictions: number
  waits: number
  steps: number
  took_ms: number
  notes: string[]
}

/** One physical GPU. */
export interface DeviceView {
  node: string
  gpu: string
}

/** Who may use some domains; domains that no rule names are open to all work. */
export interface DomainAccessView {
  domains: string[]
  queues: string[]
  namespaces: string[]
}

/** The domain of the network that was chosen for a workload or a part of it, and what spoke for it. */
export interface DomainChoiceView {
  part: string
  topology: string
  level: string
  domain: string
  strategy: string
  score: number
  availability: number
  alignment: number
  utilisation: number
  performance: number
  sentence: string
}

/** What is free in one domain of the network. */
export interface DomainFragmentsView {
  topology: string
  level: string
  domain: string
  free_gpu_milli: number
  stranded_milli: number
  ratio: number
}

/** What failed. Codes are API: never renamed, never reused. */
export type FailureKind = 'domain' | 'gpu' | 'link' | 'node' | 'slow'

/** A node or a GPU that does not work. */
export interface FailureView {
  kind: FailureKind
  name: string
  gpu: string
  domain: string
  since_s: number
  fenced: boolean
  reason: string
  workloads: string[]
}

/** Fragmentation of the cluster, its domains and its nodes, for the mix of requests that was seen. */
export interface FragmentsView {
  as_of_s: number
  free_gpu_milli: number
  stranded_milli: number
  ratio: number
  stranded_by: Record<string, number>
  nodes: NodeFragmentsView[]
  domains: DomainFragmentsView[]
  kinds: KindRoomView[]
}

/** One GPU and its tenants. */
export interface GpuView {
  node: string
  id: string
  index: number
  model: string
  memory_mib: number
  free_milli: number
  free_mib: number
  healthy: boolean
  reason: string
  tenants: TenantView[]
  profile: string
  parent: string
  measured: MeasuredView | null
  change: string
}

/** One of the coming hours. */
export interface HourNeedView {
  begins_s: number
  expected_gpus: number
  high_gpus: number
  add_nodes: number
}

/** Who makes this request, as the server sees it. */
export interface IdentityView {
  name: string
  role: string
  queues: string[]
  rights: string[]
  credential: string
  expires_in_s: number
}

/** A kind of request that was seen, and how many more pods of it fit. */
export interface KindRoomView {
  gpus: number
  gpu_milli: number
  cpu_milli: number
  models: string[]
  part: number
  pods: number
}

/** An address that logs one browser in once. */
export interface LoginView {
  path: string
}

/** What a device, or a tenant on it, used when its agent last measured it. null: not reported. */
export interface MeasuredView {
  busy_percent: number | null
  memory_mib: number | null
  power_w: number | null
  temperature_c: number | null
  processes: number
  ago_s: number
}

/** What a queue may have of one GPU model and has, in milli-GPU. -1: unlimited. */
export interface ModelAmountView {
  quota: number
  limit: number
  used: number
  fixed: number
  share: number
}

/** All nodes whose GPUs are of one model. */
export interface ModelNeedView {
  model: string
  nodes: number
  gpus: number
  gpus_per_node: number
  held_gpus: number
  waiting_gpus: number
  add_nodes: number
  add_nodes_later: number
  add_nodes_at_s: number
  hours_seen: number
  hours: HourNeedView[]
  may_go: string[]
}

/** A port of a node, as its agent measures it. */
export interface NetworkPortView {
  node: string
  device: string
  number: number
  state: string
  mb_s: number
  used_mb_s: number
}

/** One source's picture of the network. */
export interface NetworkTopologyView {
  name: string
  source: string
  fault: string
  levels: TopologyLevelView[]
  domains: TopologyDomainView[]
  links: TopologyLinkView[]
  findings: TopologyFindingView[]
  access: DomainAccessView[]
}

/** A token with its new secret, which is not stored and cannot be shown again. */
export interface NewTokenView {
  token: TokenView
  secret: string
}

/** What is free on one node. */
export interface NodeFragmentsView {
  node: string
  model: string
  free_gpu_milli: number
  whole_gpus: number
  free_cpu_milli: number
  stranded_milli: number
  reason: string
  ratio: number
}

/** One node with its GPUs. */
export interface NodeView {
  name: string
  state: string
  reason: string
  labels: Record<string, string>
  taints: string[]
  cpu_milli: Usage
  memory_mib: Usage
  pods: Usage
  gpu_milli: Usage
  gpus: GpuView[]
  agent: AgentView | null
}

/** One obstacle: the numbers, the sentence, and what would remove it. */
export interface ObstacleView {
  reason: string
  sentence: string
  remedy: string
  need: number
  have: number
  unit: string
  subject: string
}

/** What a write did, one line per object: `workload default/train submitted`. */
export interface Outcome {
  done: string[]
  warnings: string[]
  names: string[]
  would: string[]
}

/** One change of a GPU's partition mode: planned, under way or done. */
export interface PartitionStepView {
  node: string
  gpu: string
  before: string
  after: string
  state: string
  waits_s: number
  takes_s: number
  idle_gpu_s: number
  evicted_gpu_s: number
  at_s: number
  reason: string
}

/** The partition modes: what is planned, what is under way, and what was done. */
export interface PartitionsView {
  policy: string
  carried_out_by: string
  as_of_s: number
  steps: PartitionStepView[]
  total: number
  idle_gpu_s: number
  unserved: string[]
  plans: PlanView[]
  conflicts: string[]
  history: PartitionStepView[]
}

/** One attempt of a workload: where it ran, and how it ended. */
export interface PastAttemptView {
  attempt: number
  started_s: number
  ended_s: number
  exit_code: number
  message: string
  nodes: string[]
  devices: string[]
  peak_mib: number
}

/** Where a pod is between the decision and its end. */
export type Phase = 'assumed' | 'done' | 'releasing' | 'running' | 'stuck'

/** The state of one node under a PartitioningPlan. */
export interface PlanNodeView {
  node: string
  profile: string
  state: string
  reason: string
}

/** A PartitioningPlan. */
export interface PlanView {
  name: string
  state: string
  nodes: PlanNodeView[]
}

/** A plugin: where it comes from, whether it is confined, what it costs, and when it last failed. */
export interface PluginView {
  name: string
  version: string
  state: string
  kinds: string[]
  run: string
  source: string
  sha256: string
  grade: string
  detail: string
  calls: number
  mean_us: number
  longest_us: number
  faults: number
  last_fault: string
  last_fault_s: number
  dependencies: string[]
  description: string
}

/** One pod and the devices it holds. */
export interface PodView {
  name: string
  node: string
  phase: Phase
  since_s: number
  devices: string[]
  rank: number
}

/** One change of the policy while Kaiwo runs. */
export interface PolicyChangeView {
  at_s: number
  by: string
  reason: string
  fields: PolicyFieldView[]
}

/** A field that differs, as the policy file writes it. */
export interface PolicyFieldView {
  field: string
  before: string
  after: string
}

/** What changed, or would. */
export interface PolicyOutcome {
  fields: PolicyFieldView[]
  message: string
}

/** The policy in force: the fields of docs/policy.md that are not as by default. */
export interface PolicyView {
  policy: Record<string, unknown>
  source: string
  changes: PolicyChangeView[]
}

/** A refusal: what happened, to what, and what to do. `kind`: invalid | refused | not-found | forbidden | broken. */
export interface Problem {
  kind: string
  message: string
  field: string
}

/** What one queue gets until the run ends. Lists of two: without the changes, then with them. */
export interface QueueForecastView {
  queue: string
  waiting: number[]
  started: number[]
  wait_s: number[]
  gpu_hours: number[]
  evictions: number[]
}

/** One queue with its numbers. Used and waiting include the queues below it. */
export interface QueueView {
  name: string
  parent: string
  display_name: string
  priority: number
  depth: number
  is_leaf: boolean
  gpu_milli: AmountView
  cpu_milli: AmountView
  memory_mib: AmountView
  gpu_models: Record<string, ModelAmountView>
  running: number
  waiting: number
  policy: SharePolicy
  reclaim_strategy: ReclaimStrategy
  min_runtime_s: number
  namespaces: string[]
  users: string[]
  created_s: number
  max_priority: number
  share_with: string[]
  max_threads: number
  default_threads: number
  max_share_mib: number
}

/** How much a queue may reclaim from others. */
export type ReclaimStrategy = 'aggressive' | 'conservative' | 'none'

/** One workload that lost pods to failures. */
export interface RecoveryItemView {
  workload: string
  kind: FailureKind
  causes: string[]
  way: RecoveryWay
  since_s: number
  took_s: number
  ended_s: number
  whole: boolean
  lost: string[]
  moved: string[]
  others: string[]
  answer: string
}

/** Failures, recoveries under way, and past ones, the last one first. */
export interface RecoveryView {
  as_of_s: number
  failures: FailureView[]
  resting: RestingNodeView[]
  current: RecoveryItemView[]
  past: RecoveryItemView[]
}

/** How a workload gets its lost pods back. Codes are API: never renamed, never reused. */
export type RecoveryWay = 'fence' | 'move' | 'replace' | 'swap' | 'wait'

/** Where a reservation is in its life, by the clock of the snapshot. */
export type ReservationPhase = 'active' | 'expired' | 'pending'

/** GPUs that are reserved for an owner from a start to an end. */
export interface ReservationView {
  name: string
  phase: ReservationPhase
  owner_kind: string
  owner: string
  gpus: number
  missing: number
  gpu_milli: number
  used_milli: number
  start_s: number
  end_s: number
  at_end: AtEnd
  created_s: number
  is_exact: boolean
  gpu_models: string[]
  node_selector: Record<string, string>
  nodes: string[]
  devices: DeviceView[]
  others: string[]
  message: string
}

/** A node that came and went, or is slow, and takes no work for a while. */
export interface RestingNodeView {
  name: string
  failures: number
  until_s: number
  reason: string
}

/** What is needed of each GPU model, and what may go. */
export interface ScaleView {
  as_of_s: number
  models: ModelNeedView[]
}

/** The code of a login address. */
export interface SessionForm {
  code: string
}

/** A token for one browser. */
export interface SessionView {
  token: string
  expires_in_s: number
}

/** How the queues directly below a queue divide what is left when each has what it deserves. */
export type SharePolicy = 'DRF' | 'FIFO' | 'StrictPriority' | 'WeightedFair'

/** The fair share of one queue, every term of every number. */
export interface ShareView {
  queue: string
  parent: string
  depth: number
  policy: SharePolicy
  reclaim: string
  resources: TermsView[]
  turn: TurnView | null
  orders: string[]
  line: WaitingWorkloadView[]
}

/** The cluster on one screen. */
export interface StatusView {
  cluster: ClusterView
  nodes: Usage
  nodes_out: number
  gpus: Usage
  gpu_milli: Usage
  cpu_milli: Usage
  memory_mib: Usage
  workloads: Record<string, number>
  queues: number
  last_cycle: CycleView | null
  version: string
}

/** Number of report lines that were accepted. */
export interface TakenView {
  lines: number
}

/** A pod's share of one device. */
export interface TenantView {
  workload: string
  pod: string
  milli: number
  mib: number
  phase: Phase
  grade: string
  measured: MeasuredView | null
}

/** Every term of one resource's share: share = deserved + part + remainder. -1: unlimited. */
export interface TermsView {
  resource: string
  total: number
  used: number
  fixed: number
  waiting: number
  wants: number
  quota: number
  limit: number
  deserved: number
  offered: number
  weight: number
  weights: number
  part: number
  remainder: number
  share: number
  arithmetic: string[]
}

/** A person's token. Its secret is shown once, when it is made. */
export interface TokenView {
  id: string
  name: string
  role: string
  state: string
  queues: string[]
  created_s: number
  created_by: string
  expires_s: number
  last_used_s: number
  revoked_s: number
  rotations: number
  former_until_s: number
}

/** A set of nodes that share a switch, a rack or a block. */
export interface TopologyDomainView {
  name: string
  level: string
  parents: string[]
  nodes: string[]
  gpu_milli: number
  free_gpu_milli: number
  links: number
  dead_links: number
  link_mb_s: number
  port_mb_s: number
  oversubscription_milli: number
  active_nodes: number
  share_mb_s: number
  used_by: string[]
  asked_mb_s: number
  sent_mb_s: number
  speed_percent: number
}

/** One thing about the network that people should know. */
export interface TopologyFindingView {
  kind: string
  subject: string
  detail: string
}

/** One level of a topology. */
export interface TopologyLevelView {
  name: string
  node_label: string
  domains: number
  nodes: number
}

/** Equal parallel links. */
export interface TopologyLinkView {
  lower: string
  upper: string
  mb_s: number
  count: number
  dead: number
  state: string
  used_mb_s: number
  used_by: string[]
  asked_mb_s: number
}

/** The network: domains, links, who uses them, and where its sources disagree. */
export interface TopologyView {
  as_of_s: number
  topologies: NetworkTopologyView[]
  contradictions: TopologyFindingView[]
  faults: string[]
  ports: NetworkPortView[]
}

/** A queue's turn among the siblings with waiting work. Its keys count in this order. */
export interface TurnView {
  place: number
  of: number
  workload: string
  policy_key: number
  is_over_share: boolean
  is_over_quota: boolean
  priority: number
  has_no_share: boolean
  dominant_with_it_ppm: number
  dominant_ppm: number
  gpu_milli: number
  age: number
}

/** How much of a total is used. */
export interface Usage {
  total: number
  used: number
}

/** The versions of Kaiwo and of its API. */
export interface VersionView {
  version: string
  api: string
}

/** One of the first workloads of a queue; the smallest keys come first. */
export interface WaitingWorkloadView {
  workload: string
  priority: number
  submitted_s: number
  keys: number[][]
}

/** Lists of two: without the changes, then with them. */
export interface WhatIfView {
  as_of_s: number
  until_s: number[]
  is_whole: boolean[]
  gpus: number[]
  utilisation: number[]
  queues: QueueForecastView[]
  added: Record<string, number>
  unknown: number
}

/** What `kaiwo why` found. */
export type WhyVerdict = 'blocked' | 'change-evicts' | 'change-found' | 'not-tried-yet' | 'not-waiting' | 'nothing-helps' | 'running' | 'undecided'

/** Why a workload waits, and what would start it now. */
export interface WhyView {
  workload: string
  state: WorkloadState
  answer: string
  obstacles: ObstacleView[]
  position: number
  ahead: number
  change: ChangeView | null
  no_change: string
  as_of_s: number
  partitions: string
  planned: string
  verdict: WhyVerdict | null
  searched_all: boolean
  capped_priority: string
  expected: string
  expected_s: number
  expected_low_s: number
  expected_high_s: number
}

/** All details of one workload. */
export interface WorkloadDetail {
  summary: WorkloadView
  placed: PodView[]
  obstacles: ObstacleView[]
  requests: string[]
  command: string[]
  image: string
  after: string[]
  time_limit_s: number
  estimate_s: number
  learned_s: number
  retries: number
  preemptible: boolean
  exit_code: number
  message: string
  reservation: string
  expires_s: number
  planned: string
  preemption_delay_s: number
  checkpoint_s: number
  restart_s: number
  submission: number
  submissions: number[]
  attempts: PastAttemptView[]
  incomplete: string
  kept_places: string
  asked_priority: number | null
  capped_priority: string
  topology: string
  required_level: string
  preferred_level: string
  placement_strategy: string
  segment_size: number
  segment_level: string
  bandwidth_mb_s: number
  roles_level: string
  rank_order: boolean
  domains: DomainChoiceView[]
  progress: string
  memory_promise: string
  hidden: string
  may_change: boolean
  secret_env: string[]
}

/** Where a workload is in its life. */
export type WorkloadState = 'cancelled' | 'failed' | 'held' | 'running' | 'starting' | 'stopping' | 'succeeded' | 'waiting'

/** One row of the list. `reason`: the first obstacle's sentence while it waits, later how it ended.

    The name of a folded array ends in `-*`. Its state is that of its liveliest task. */
export interface WorkloadView {
  name: string
  queue: string
  user: string
  kind: string
  state: WorkloadState
  priority: number
  wants: string
  gpu_milli: number
  pods: Usage
  submitted_s: number
  started_s: number
  ended_s: number
  attempt: number
  reason: string
  nodes: string[]
  labels: Record<string, string>
  planned_s: number
  array: ArrayView | null
  expected_s: number
  expected_low_s: number
  expected_high_s: number
}
