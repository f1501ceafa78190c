// Changes that a forward run confirmed, what more nodes would bring, trends, what requests were adjusted, and GPU-hours.

import type {
  AdjustmentListView,
  AdjustmentView,
  AdviceListView,
  AdviceView,
  CapacityOutlookView,
  CapacityView,
  TrendView,
  TrendsView,
} from '../api/views'
import { useNow } from '../live/clock'
import { AnswerPanel, Nothing } from '../page/AnswerPanel'
import { CommandLine } from '../page/Panel'
import { type Column, PlainTable } from '../page/PlainTable'
import { count, counted } from '../words/amounts'
import { span } from '../words/times'
import { shortName } from '../words/work'
import { nodesToAdd, partWords, trendWords } from './words'

interface Props {
  onPick: (workload: string) => void
}

export function AdvicePage({ onPick }: Props) {
  return (
    <>
      <AnswerPanel<AdviceListView> title="Advice" path="/advice">
        {(found) => <AdviceList found={found} />}
      </AnswerPanel>
      <AnswerPanel<CapacityView> title="Capacity" path="/capacity">
        {(found) => <Capacity found={found} />}
      </AnswerPanel>
      <AnswerPanel<TrendsView> title="Trends" path="/trends">
        {({ items }) =>
          items.length ? (
            <PlainTable columns={TRENDS} rows={items} rowKey={(row) => `${row.kind} ${row.name} ${row.measure}`} />
          ) : (
            <Nothing>There is no trend yet: two days of history are needed.</Nothing>
          )
        }
      </AnswerPanel>
      <AnswerPanel<AdjustmentListView> title="Adjusted requests" path="/adjustments">
        {(found) => <Adjustments found={found} onPick={onPick} />}
      </AnswerPanel>
    </>
  )
}

const ADVICE: Column<AdviceView>[] = [
  { title: 'Change', cell: (row) => row.what },
  { title: 'Gain', cell: (row) => row.gain },
  {
    title: 'How that is known',
    cell: (row) => (
      <>
        <p className="muted">{row.evidence}</p>
        {row.command && <CommandLine>{row.command}</CommandLine>}
      </>
    ),
  },
]

function AdviceList({ found }: { found: AdviceListView }) {
  if (found.is_pending) return <Nothing>The scheduler runs forward to try changes; this takes up to two minutes.</Nothing>
  return (
    <>
      {found.items.length ? (
        <PlainTable columns={ADVICE} rows={found.items} rowKey={(row) => `${row.kind} ${row.subject} ${row.what}`} />
      ) : (
        <Nothing>{`No change helps: ${counted(found.tried, 'change was', 'changes were')} tried.`}</Nothing>
      )}
      {found.hidden && <p className="muted">{found.hidden}</p>}
    </>
  )
}

const OUTLOOKS: Column<CapacityOutlookView>[] = [
  { title: 'Nodes', cell: nodesToAdd },
  { title: 'GPUs', cell: (row) => count(row.gpus) },
  { title: 'Half wait at most', cell: (row) => span(row.p50_wait_s) },
  { title: 'Nine of ten at most', cell: (row) => span(row.p90_wait_s) },
  { title: 'Started', cell: (row) => partWords(row.started) },
  { title: 'GPUs in use', cell: (row) => partWords(row.utilisation) },
]

function Capacity({ found }: { found: CapacityView }) {
  if (found.is_pending) return <Nothing>The scheduler runs forward with more nodes; this takes up to two minutes.</Nothing>
  return (
    <>
      <PlainTable columns={OUTLOOKS} rows={found.outlooks} rowKey={(row) => `${row.model} ${row.add_nodes}`} />
      <p className="muted">
        For {counted(found.waiting, 'workload')} that wait and {count(found.arriving)} that are expected within a day
        {found.unknown > 0 && `; ${counted(found.unknown, 'workload')} of unknown run time left out`}.
      </p>
    </>
  )
}

const TRENDS: Column<TrendView>[] = [
  { title: 'Of', cell: (row) => (row.kind === 'cluster' ? 'the cluster' : `${row.kind} ${row.name}`) },
  { title: 'What', cell: (row) => trendWords(row).what },
  { title: 'Before', cell: (row) => trendWords(row).before },
  { title: 'Now', cell: (row) => trendWords(row).now },
  { title: 'A day', cell: (row) => trendWords(row).perDay },
  { title: 'Full in', cell: (row) => (row.full_in_days === null ? 'not foreseen' : counted(row.full_in_days, 'day')) },
]

function Adjustments({ found, onPick }: { found: AdjustmentListView; onPick: Props['onPick'] }) {
  const now_s = useNow()
  const columns: Column<AdjustmentView>[] = [
    {
      title: 'Workload',
      cell: (row) => (
        <button type="button" className="link work-link" onClick={() => onPick(row.workload)}>
          {shortName(row.workload)}
        </button>
      ),
    },
    { title: 'Ago', cell: (row) => span(now_s - row.at_s) },
    { title: 'What', cell: (row) => row.kind },
    { title: 'Why', cell: (row) => [row.reason, row.refused].filter(Boolean).join('; ') },
  ]
  if (found.items.length) {
    return <PlainTable columns={columns} rows={found.items} rowKey={(row) => `${row.workload} ${row.submission} ${row.at_s} ${row.kind}`} />
  }
  return <Nothing>{found.mode === 'act' ? 'Nothing was adjusted yet.' : `The policy says adjustment: ${found.mode}, so requests stay as they are.`}</Nothing>
}
