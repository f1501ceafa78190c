// One page of workloads as a table: the same columns and words as `kaiwo queue`.

import { memo } from 'react'
import type { WorkloadView } from '../api/views'
import { useNow } from '../live/clock'
import type { PageState } from '../page/address'
import { StateMark, WorkName } from '../page/Panel'
import { span } from '../words/times'
import { TABS, plannedStart, ran, nodesOrReason } from '../words/work'
import { type Sort, nextSort } from './query'

interface Props {
  rows: readonly WorkloadView[]
  pageState: PageState
  go: (change: Partial<PageState>) => void
}

const COLUMNS: { title: string; sort?: Sort; className: string }[] = [
  { title: 'State', sort: 'state', className: 'col-state' },
  { title: 'Name', sort: 'name', className: 'col-name' },
  { title: 'Queue', sort: 'queue', className: 'col-queue' },
  { title: 'User', className: 'col-user' },
  { title: 'Wants', sort: 'gpus', className: 'col-wants' },
  { title: 'Pods', className: 'col-pods number' },
  { title: 'Age', sort: 'submitted', className: 'col-age number' },
  { title: 'Ran', className: 'col-ran number' },
]

export function WorkTable({ rows, pageState, go }: Props) {
  const now_s = useNow()
  const shown = pageState.sort || TABS[pageState.tab].sort
  return (
    <table className="work-table">
      <thead>
        <tr>
          {COLUMNS.map(({ title, sort, className }) => (
            <th key={title} className={className} scope="col" {...(sort && { 'aria-sort': direction(shown, sort) })}>
              {sort ? (
                <button type="button" onClick={() => go({ sort: nextSort(pageState.sort, sort) })}>
                  {title}
                  <span aria-hidden="true">{ARROWS[direction(shown, sort)]}</span>
                </button>
              ) : (
                title
              )}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((work) => (
          <WorkRow
            key={work.name}
            work={work}
            age={span(now_s - work.submitted_s)}
            ran={ran(work, now_s)}
            planned={plannedStart(work, now_s)}
            isChosen={pageState.work === work.name}
            go={go}
          />
        ))}
      </tbody>
    </table>
  )
}

const ARROWS = { ascending: ' ↑', descending: ' ↓', none: '' }

/** Submitted early is old: by age the order is the other way round. */
function direction(shown: string, column: Sort): 'ascending' | 'descending' | 'none' {
  if (shown !== column && shown !== `-${column}`) return 'none'
  return (shown === column) === (column !== 'submitted') ? 'ascending' : 'descending'
}

interface RowProps {
  work: WorkloadView
  age: string
  ran: string
  planned: string
  isChosen: boolean
  go: Props['go']
}

/** Drawn again only when something it shows has changed. */
const WorkRow = memo(function WorkRow({ work, age, ran, planned, isChosen, go }: RowProps) {
  const choose = () => go({ work: isChosen ? '' : work.name })
  return (
    <tr className={isChosen ? 'chosen' : ''} onClick={choose}>
      <td className="col-state">
        <StateMark state={work.state} />
      </td>
      <td className="col-name">
        <button
          type="button"
          className="link"
          aria-expanded={isChosen}
          onClick={(event) => {
            event.stopPropagation()
            choose()
          }}
        >
          <WorkName name={work.name} />
        </button>
        <span className="where-or-why">{nodesOrReason(work)}</span>
        {planned && <span className="planned">{planned}</span>}
        <span className="narrow-only muted">
          {[work.wants, work.queue, work.user, age].filter(Boolean).join(' · ')}
        </span>
      </td>
      <td className="col-queue">{work.queue}</td>
      <td className="col-user">{work.user}</td>
      <td className="col-wants">{work.wants}</td>
      <td className="col-pods number">
        {work.pods.used}/{work.pods.total}
      </td>
      <td className="col-age number">{age}</td>
      <td className="col-ran number">{ran}</td>
    </tr>
  )
})
