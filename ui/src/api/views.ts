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

/** The newest first. */
export interface AdjustmentListView {
  now_s: number
  mode: string
  idle_action: string
  items: AdjustmentView[]
  kinds: number
  hidden: string
}

/** Something that Kaiwo did about what a workload asked for, and why. */
export interface AdjustmentView {
  at_s: number
  workload: string
  submission: number
  user: string
  queue: string
  kind: string
  reason: string
  sizes: ResizedView[]
  refused: string
}

/** The largest gain first. */
export interface AdviceListView {
  as_of_s: number
  items: AdviceView[]
  tried: number
  refused: number
  is_whole: boolean
  is_pending: boolean
  hidden: string
}

/** One change that a forward run of the scheduler confirmed. Lists of two: without the change, then with it. */
export interface AdviceView {
  kind: string
  subject: string
  what: string
  gain: string
  evidence: string
  command: string
  wait_s: number[]
  started_now: number[]
  held_gpu_s: number[]
  sooner: number
  later: number
  sizes: ResizedView[]
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

/** Where alerts are told, without anything secret. */
export interface AlertChannelView {
  name: string
  type: string
  target: string
  severity: Severity
  rules: string[]
  waiting: number
  delivered: number
  failures: number
  dropped: number
  problem: string
}

/** A rule: what it compares, and how bad it is when it holds. */
export interface AlertRuleView {
  name: string
  kind: RuleKind
  of: string
  compares: string
  for_s: number
  keep_s: number
  severity: Severity
  subjects: string[]
  labels: Record<string, string>
  summary: string
  action: string
  is_built_in: boolean
  firing: number
  pending: number
}

/** All rules, by name. */
export interface AlertRulesView {
  rules: AlertRuleView[]
  problem: string
}

/** How far an alert is. */
export type AlertState = 'firing' | 'pending' | 'resolved'

/** A rule that holds, or held, for one subject. */
export interface AlertView {
  id: string
  rule: string
  state: AlertState
  severity: Severity
  of: string
  subject: string
  summary: string
  action: string
  value: number
  since_s: number
  fired_s: number
  resolved_s: number
  quiet: string
  labels: Record<string, string>
}

/** What fires and what is pending, the worst first. */
export interface AlertsView {
  now_s: number
  alerts: AlertView[]
  rules: number
  evaluated_s: number
  problem: string
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

/** A node that was scored. */
export interface CandidateView {
  node: string
  score: number
  terms: ScoreTermView[]
  words: string
}

/** What waiting would be like with some more nodes. */
export interface CapacityOutlookView {
  model: string
  add_nodes: number
  gpus: number
  p50_wait_s: number
  p90_wait_s: number
  mean_wait_s: number
  started: number
  utilisation: number
}

/** The same demand with each choice; the cluster as it is comes first. */
export interface CapacityView {
  as_of_s: number
  outlooks: CapacityOutlookView[]
  waiting: number
  arriving: number
  growth_percent: number
  unknown: number
  is_whole: boolean
  is_pending: boolean
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

/** GPU time of one group. What is not grouped by is empty. Thousandths of a GPU times seconds. */
export interface ConsumptionView {
  period: string
  queue: string
  user: string
  held_gpu_milli_s: number
  measured_gpu_milli_s: number
  used_gpu_milli_s: number
}

/** What a cycle saw and decided. Lists are cut at 200; the numbers of the cycle say how many there were. */
export interface CycleDetailView {
  number: number
  is_same: boolean
  differences: string[]
  nodes: number
  waiting: number
  starts: CycleStartView[]
  evictions: CycleEvictionView[]
  waits: CycleWaitView[]
}

/** A pod that was stopped. */
export interface CycleEvictionView {
  workload: string
  pod: string
  node: string
  cause: string
  beneficiary: string
}

/** A pod that was started. */
export interface CycleStartView {
  workload: string
  pod: string
  node: string
  devices: string[]
  fits: number
  by_domain: boolean
  candidates: CandidateView[]
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

/** Equal work of one queue whose reasons to wait changed. */
export interface CycleWaitView {
  queue: string
  shape: string
  reasons: string[]
}

/** The last run of moves, and the limits of runs. */
export interface DefragmentationView {
  as_of_s: number
  run: MoveRunView | null
  limits: MoveLimitsView
  message: string
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

/** What it used of what it held. Thousandths of a GPU times seconds; null: nobody knows. */
export interface EfficiencyView {
  waited_s: number
  ran_s: number
  held_gpu_milli_s: number
  measured_gpu_milli_s: number
  used_gpu_milli_s: number | null
  wasted_gpu_milli_s: number | null
  used_percent: number | null
  lost_gpu_s: number
  asked_memory_mib: number
  peak_memory_mib: number | null
}

/** One submission of a workload that has ended. */
export interface EndedWorkView {
  workload: string
  submission: number
  queue: string
  user: string
  state: string
  gpu_milli: number
  submitted_s: number
  started_s: number
  ended_s: number
  attempts: number
  evictions: number
  exit_code: number
  message: string
  held_gpu_milli_s: number
  measured_gpu_milli_s: number
  used_gpu_milli_s: number
}

/** The scheduler stopped pods of it for others. */
export interface EvictionView {
  at_s: number
  cause: string
  pods: number
  by: string
  beneficiary: string
  beneficiary_user: string
  beneficiary_queue: string
  nodes: string[]
  lost_gpu_s: number
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

/** How busy the GPUs of each node with an agent are, in percent, in the order of the node's list; null: unknown. */
export interface GpuUseView {
  nodes: Record<string, (number | null)[]>
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

/** All that is known of the past of one submission of a workload. */
export interface HistoryView {
  workload: string
  submission: number
  submissions: number[]
  queue: string
  user: string
  state: string
  submitted_s: number
  started_s: number
  ended_s: number
  exit_code: number | null
  message: string
  now_s: number
  timeline: MomentView[]
  attempts: PastAttemptView[]
  evictions: EvictionView[]
  efficiency: EfficiencyView
  unknown: string[]
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

/** All of them, the most idle GPU time first. */
export interface IdleListView {
  now_s: number
  most_percent: number
  measured: boolean
  items: IdleView[]
}

/** Running work whose GPUs do nothing. */
export interface IdleView {
  workload: string
  queue: string
  user: string
  held_gpu_milli: number
  idle_gpu_milli: number
  since_s: number
}

/** Running work that is not moved, and why. */
export interface KeptWorkView {
  workload: string
  gpu_milli: number
  reason: string
  sentence: string
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

/** Something that is recorded over time. */
export interface MeasureView {
  kind: string
  name: string
  help: string
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

/** All measures that are recorded. */
export interface MeasuresView {
  measures: MeasureView[]
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

/** Something that happened, or that lasted for a time. */
export interface MomentView {
  kind: string
  at_s: number
  until_s: number
  sentence: string
  attempt: number
  is_over: boolean
}

/** The policy's limits for a run. */
export interface MoveLimitsView {
  hours: string[]
  at_once: number
  per_hour: number
}

/** The place of a waiting pod. */
export interface MovePlaceView {
  workload: string
  pod: string
  node: string
  gpus: string[]
}

/** What moves would bring, and what they cost. Nothing was changed. */
export interface MovePlanView {
  name: string
  as_of_s: number
  goal: string
  moves: number
  moved_percent: number
  lost_gpu_hours: number
  least_s: number
  gpu_milli: number
  used_before_milli: number
  used_after_milli: number
  running: number
  movable: number
  waiting: number
  is_smallest: boolean
  is_cut_short: boolean
  free_nodes: string[]
  load_gap: number[]
  steps: MoveStepView[]
  kept: KeptWorkView[]
  kinds: KindRoomView[]
  limits: MoveLimitsView
  message: string
}

/** A plan that is or was carried out. */
export interface MoveRunView {
  name: string
  goal: string
  state: string
  by: string
  begun_s: number
  ended_s: number
  moves: number
  moved: number
  moving: number
  waiting: number
  not_moved: number
  steps: MoveStepView[]
}

/** Moves that belong together, and what they are for. */
export interface MoveStepView {
  number: number
  moves: MoveView[]
  starts: MovePlaceView[]
  gained_gpu_milli: number
  frees: string
  reason: string
}

/** One running pod that changes its place, and how far that is. */
export interface MoveView {
  workload: string
  pod: string
  source: string
  node: string
  gpus: string[]
  lost_gpu_hours: number
  state: string
  since_s: number
  until_s: number
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

/** The values of one subject. */
export interface OneSeriesView {
  name: string
  values: (number | null)[]
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

/** Alerts that were resolved, the last first. */
export interface PastAlertsView {
  now_s: number
  alerts: AlertView[]
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

/** Consumption in a range of days. */
export interface ReportView {
  rows: ConsumptionView[]
  hidden: string
}

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

/** One amount of a request, and why it changes. */
export interface ResizedView {
  amount: string
  asked: number
  peak: number
  expected: number
  given: number
  runs: number
}

/** A node that came and went, or is slow, and takes no work for a while. */
export interface RestingNodeView {
  name: string
  failures: number
  until_s: number
  reason: string
}

/** How a measure becomes the number that is compared. */
export type RuleKind = 'absence' | 'anomaly' | 'rate' | 'ratio' | 'threshold'

/** What is needed of each GPU model, and what may go. */
export interface ScaleView {
  as_of_s: number
  models: ModelNeedView[]
}

/** It counts score times weight. */
export interface ScoreTermView {
  name: string
  score: number
  weight: number
}

/** One measure of some subjects. */
export interface SeriesView {
  kind: string
  measure: string
  statistic: string
  begins_s: number
  step_s: number
  series: OneSeriesView[]
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

/** How bad it is. */
export type Severity = 'critical' | 'info' | 'warning'

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

/** Nobody is told of these alerts until some time. They are listed all the same. */
export interface SilenceView {
  id: number
  rule: string
  subject: string
  made_s: number
  until_s: number
  by: string
  reason: string
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

/** The names of which something was recorded in the last month. */
export interface SubjectsView {
  kind: string
  names: string[]
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
  queue: string
  user: string
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
  most_mb_s: number
}

/** The network: domains, links, who uses them, and where its sources disagree. */
export interface TopologyView {
  as_of_s: number
  topologies: NetworkTopologyView[]
  contradictions: TopologyFindingView[]
  faults: string[]
  ports: NetworkPortView[]
}

/** One measure, this week and the week before, or the two halves of a shorter history. */
export interface TrendView {
  kind: string
  name: string
  measure: string
  now: number
  before: number
  span_h: number
  per_day: number
  full_in_days: number | null
}

/** Of the cluster and of its queues; what has too little history is left out. */
export interface TrendsView {
  as_of_s: number
  items: TrendView[]
  days: number
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
  ended_before: string
  protected: string
}

/** How many workloads of a query are in each state. */
export interface WorkloadCountsView {
  states: Record<string, number>
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
  strategy: string
  domains: DomainChoiceView[]
  progress: string
  memory_promise: string
  hidden: string
  may_change: boolean
  may_do: string[]
  changeable: string[]
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
