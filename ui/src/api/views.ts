// The JSON of the API, word for word as src/kaiwo/api/views/ writes it. Integers only: milli-GPU, milli-CPU, MiB, seconds.

export type State =
  | 'waiting'
  | 'held'
  | 'starting'
  | 'running'
  | 'stopping'
  | 'succeeded'
  | 'failed'
  | 'cancelled'

export type Phase = 'assumed' | 'running' | 'releasing' | 'done'

export interface Page<T> {
  items: T[]
  total: number
  next: string
}

export interface Usage {
  total: number
  used: number
}

export interface ClusterView {
  kind: string
  name: string
  is_virtual: boolean
  speed: number
  now_s: number
}

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

export interface StatusView {
  cluster: ClusterView
  nodes: Usage
  nodes_out: number
  gpus: Usage
  gpu_milli: Usage
  cpu_milli: Usage
  memory_mib: Usage
  workloads: Partial<Record<State, number>>
  queues: number
  last_cycle: CycleView | null
  version: string
}

/** When the node's agent looked last; null: not told. */
export interface MeasuredView {
  busy_percent: number | null
  memory_mib: number | null
  power_w: number | null
  temperature_c: number | null
  processes: number
  ago_s: number
}

export interface TenantView {
  workload: string
  pod: string
  milli: number
  mib: number
  phase: Phase
  grade?: string // how well it is kept apart; empty in a stream
  measured?: MeasuredView | null // null in a stream
}

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
  profile?: string // of a partition
  parent?: string
  change?: 'draining' | 'changing' | '' // where its partition mode changes
  measured?: MeasuredView | null // null in a stream
}

export interface NodeView {
  name: string
  state: string // ready | cordoned | not-ready
  reason: string
  labels: Record<string, string>
  taints: string[]
  cpu_milli: Usage
  memory_mib: Usage
  pods: Usage
  gpu_milli: Usage
  gpus: GpuView[]
}

export interface AmountView {
  quota: number // -1: unlimited, and so for the limit
  limit: number
  weight: number
  used: number
  waiting: number
  fixed: number
  share: number
}

export type SharePolicy = 'DRF' | 'WeightedFair' | 'StrictPriority' | 'FIFO'

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
  gpu_models: Record<string, { quota: number; limit: number; used: number; fixed: number; share: number }>
  running: number
  waiting: number
  policy: SharePolicy
  reclaim_strategy: 'aggressive' | 'conservative' | 'none'
  min_runtime_s: number
  namespaces: string[]
  users: string[]
  created_s: number
}

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

export interface ShareView {
  queue: string
  parent: string
  depth: number
  policy: SharePolicy
  reclaim: string
  resources: TermsView[]
  turn: TurnView | null
  orders: string[]
  line: { workload: string; priority: number; submitted_s: number; keys: number[][] }[]
}

export interface ObstacleView {
  reason: string
  sentence: string
  remedy: string
  need: number
  have: number
  unit: string
  subject: string
}

export interface PodView {
  name: string
  node: string
  phase: Phase
  since_s: number
  devices: string[]
}

export interface WorkloadView {
  name: string
  queue: string
  user: string
  kind: string
  state: State
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
  planned_s: number // its planned start, while it waits; 0: it has none
}

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
  learned_s: number // how long runs like it took; 0: too few are known
  retries: number
  preemptible: boolean
  exit_code: number
  message: string
  planned: string // when and where it is planned to start, and why then
  preemption_delay_s: number // it waits so long before others are stopped for it
  checkpoint_s: number // when it last saved its work; 0: nobody said so
  restart_s: number // how long it takes, once stopped, to be where it was then
}

export interface ChangeView {
  kind: string
  by: string // researcher | admin
  sentence: string
  command: string
}

export interface WhyView {
  workload: string
  state: State
  answer: string
  obstacles: ObstacleView[]
  position: number
  ahead: number
  change: ChangeView | null
  no_change: string
  partitions?: string // what the partition planner does for it
  planned: string // when and where it is planned to start, and why then
  as_of_s: number
}

export interface Outcome {
  done: string[]
  warnings: string[]
  names: string[]
}

export interface Problem {
  kind: string
  message: string
  field: string
}
