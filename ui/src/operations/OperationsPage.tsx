// What an operator looks after: failures, reservations, partition modes, the number of nodes, and who changed what.

import type {
  AuditPageView,
  AuditRecordView,
  FailureView,
  IdentityView,
  ModelNeedView,
  Page,
  PartitionStepView,
  PartitionsView,
  RecoveryItemView,
  RecoveryView,
  ReservationView,
  RestingNodeView,
  ScaleView,
} from '../api/views'
import { useNow } from '../live/clock'
import { usePolled } from '../live/hooks'
import { AnswerPanel, Nothing } from '../page/AnswerPanel'
import { type Column, PlainTable } from '../page/PlainTable'
import { count, counted } from '../words/amounts'
import { span } from '../words/times'
import { nodeWords, shortName } from '../words/work'
import { failedThing, ownerWords, timesOf } from './words'

const AUDIT_SHOWN = 50
const PAST_SHOWN = 20

interface Props {
  onPick: (workload: string) => void
  onPickNode: (node: string) => void
}

export function OperationsPage({ onPick, onPickNode }: Props) {
  return (
    <>
      <RecoveryPanel onPick={onPick} onPickNode={onPickNode} />
      <ReservationPanel />
      <PartitionPanel onPickNode={onPickNode} />
      <ScalePanel />
      <AuditPanel />
    </>
  )
}

function WorkLinks({ names, onPick }: { names: readonly string[]; onPick: (workload: string) => void }) {
  return names.map((name) => (
    <button key={name} type="button" className="link work-link" onClick={() => onPick(name)}>
      {shortName(name)}
    </button>
  ))
}

function NodeLink({ name, onPickNode }: { name: string; onPickNode: (node: string) => void }) {
  return (
    <button type="button" className="link" onClick={() => onPickNode(name)}>
      {name}
    </button>
  )
}

function RecoveryPanel({ onPick, onPickNode }: Props) {
  const now_s = useNow()
  const failures: Column<FailureView>[] = [
    { title: 'Failed', cell: failedThing },
    { title: 'Since', cell: (row) => span(now_s - row.since_s) },
    { title: 'Fenced', cell: (row) => (row.fenced ? 'yes' : 'no') },
    { title: 'Work', cell: (row) => <WorkLinks names={row.workloads} onPick={onPick} /> },
    { title: 'Reason', cell: (row) => row.reason },
  ]
  const resting: Column<RestingNodeView>[] = [
    { title: 'Takes no work', cell: (row) => <NodeLink name={row.name} onPickNode={onPickNode} /> },
    { title: 'Failures', cell: (row) => count(row.failures) },
    { title: 'Takes work in', cell: (row) => span(row.until_s - now_s) },
    { title: 'Reason', cell: (row) => row.reason },
  ]
  const recoveries: Column<RecoveryItemView>[] = [
    { title: 'Workload', cell: (row) => <WorkLinks names={[row.workload]} onPick={onPick} /> },
    { title: 'Cause', cell: (row) => row.causes.join(', ') },
    { title: 'Way', cell: (row) => row.way },
    { title: 'Pods lost', cell: (row) => count(row.lost.length) },
    { title: 'Moved', cell: (row) => count(row.moved.length) },
    { title: 'Took', cell: (row) => span(row.took_s) },
    { title: 'State', cell: (row) => (row.ended_s ? (row.whole ? 'whole again' : 'ended') : row.answer || 'recovering') },
  ]
  return (
    <AnswerPanel<RecoveryView> title="Failures and recovery" path="/recovery">
      {(view) => {
        const known = [...view.current, ...view.past.slice(0, PAST_SHOWN)]
        return (
          <div className="tables">
            {view.failures.length > 0 && <PlainTable columns={failures} rows={view.failures} rowKey={failedThing} />}
            {view.resting.length > 0 && <PlainTable columns={resting} rows={view.resting} rowKey={(row) => row.name} />}
            {known.length > 0 && (
              <PlainTable columns={recoveries} rows={known} rowKey={(row) => `${row.workload} ${row.since_s} ${row.kind}`} />
            )}
            {!view.failures.length && !view.resting.length && !known.length && (
              <Nothing>Everything works: no node, GPU or link has failed since Kaiwo started.</Nothing>
            )}
          </div>
        )
      }}
    </AnswerPanel>
  )
}

function ReservationPanel() {
  const now_s = useNow()
  const columns: Column<ReservationView>[] = [
    { title: 'Reservation', cell: (row) => row.name },
    { title: 'State', cell: (row) => row.phase },
    { title: 'For', cell: ownerWords },
    { title: 'GPUs', cell: (row) => `${count(row.gpus)}${row.missing ? `, ${count(row.missing)} missing` : ''}` },
    { title: 'When', cell: (row) => timesOf(row, now_s) },
    { title: 'Nodes', cell: (row) => nodeWords(row.nodes) },
    { title: 'Message', cell: (row) => row.message },
  ]
  return (
    <AnswerPanel<Page<ReservationView>> title="Reservations" path="/reservations">
      {({ items }) =>
        items.length ? <PlainTable columns={columns} rows={items} rowKey={(row) => row.name} /> : <Nothing>No GPUs are reserved.</Nothing>
      }
    </AnswerPanel>
  )
}

function PartitionPanel({ onPickNode }: Pick<Props, 'onPickNode'>) {
  const now_s = useNow()
  const columns: Column<PartitionStepView>[] = [
    { title: 'Node', cell: (row) => <NodeLink name={row.node} onPickNode={onPickNode} /> },
    { title: 'GPU', cell: (row) => row.gpu || 'all' },
    { title: 'Change', cell: (row) => `${row.before} → ${row.after}` },
    { title: 'State', cell: (row) => row.state },
    { title: 'When', cell: (row) => (row.at_s ? `${span(now_s - row.at_s)} ago` : row.waits_s ? `in ${span(row.waits_s)}` : 'now') },
    { title: 'Reason', cell: (row) => row.reason },
  ]
  return (
    <AnswerPanel<PartitionsView> title="Partition modes" path="/partitions">
      {(view) => {
        const rows = [...view.steps, ...view.history.slice(0, PAST_SHOWN)]
        return (
          <>
            {view.conflicts.map((conflict) => (
              <p key={conflict}>{conflict}</p>
            ))}
            {rows.length ? (
              <PlainTable columns={columns} rows={rows} rowKey={(row) => `${row.node} ${row.gpu} ${row.after} ${row.at_s} ${row.state}`} />
            ) : (
              <Nothing>No partition mode changes, and none has changed since Kaiwo started.</Nothing>
            )}
          </>
        )
      }}
    </AnswerPanel>
  )
}

const SCALE: Column<ModelNeedView>[] = [
  { title: 'GPU model', cell: (row) => row.model },
  { title: 'Nodes', cell: (row) => count(row.nodes) },
  { title: 'GPUs', cell: (row) => `${count(row.held_gpus)} of ${count(row.gpus)} held, ${count(row.waiting_gpus)} waited for` },
  { title: 'Needed now', cell: (row) => (row.add_nodes ? counted(row.add_nodes, 'more node') : 'none') },
  { title: 'Needed within a day', cell: (row) => (row.add_nodes_later ? counted(row.add_nodes_later, 'more node') : 'none') },
  { title: 'May go', cell: (row) => nodeWords(row.may_go) || 'none' },
]

function ScalePanel() {
  return (
    <AnswerPanel<ScaleView> title="Number of nodes" path="/scale">
      {({ models }) =>
        models.length ? <PlainTable columns={SCALE} rows={models} rowKey={(row) => row.model} /> : <Nothing>The cluster has no GPUs yet.</Nothing>
      }
    </AnswerPanel>
  )
}

const AUDIT: Column<AuditRecordView>[] = [
  { title: 'Number', cell: (row) => count(row.n) },
  { title: 'Time', cell: (row) => new Date(row.at).toLocaleString('en-GB') },
  { title: 'Who', cell: (row) => `${row.person}${row.role && ` (${row.role})`}` },
  { title: 'What', cell: (row) => `${row.action} ${row.object}` },
  { title: 'Outcome', cell: (row) => [row.outcome, row.detail].filter(Boolean).join(': ') },
  { title: 'Reason', cell: (row) => row.reason },
]

/** Only for those who may read it: others would see a refusal. */
function AuditPanel() {
  const { value: person } = usePolled<IdentityView>('/whoami', 60_000)
  if (!person?.rights.includes('operate')) return null
  return (
    <AnswerPanel<AuditPageView> title="Audit" path={`/audit?limit=${AUDIT_SHOWN}`}>
      {({ items }) =>
        items.length ? <PlainTable columns={AUDIT} rows={items} rowKey={(row) => row.n} /> : <Nothing>Nobody has changed anything yet.</Nothing>
      }
    </AnswerPanel>
  )
}
