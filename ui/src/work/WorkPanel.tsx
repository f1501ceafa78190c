// The work: tabs by state, a search, a queue filter, and one page of the list, live.

import { useState } from 'react'
import type { QueueView, StatusView, WorkloadCountsView, WorkloadView } from '../api/views'
import { useLive, usePolled } from '../live/hooks'
import type { PageState } from '../page/address'
import { CommandLine, Panel, Skeleton } from '../page/Panel'
import { count } from '../words/amounts'
import { TABS, type Tab, countIn } from '../words/work'
import { SearchBox } from './SearchBox'
import { SubmitForm } from './SubmitForm'
import { WorkTable } from './WorkTable'
import { PAGE_SIZE, countPath, rangeWords, workQuery } from './query'

const COUNTS_AGAIN_MS = 2000

interface Props {
  pageState: PageState
  status: StatusView | undefined
  queues: readonly QueueView[]
  go: (change: Partial<PageState>) => void
}

export function WorkPanel({ pageState, status, queues, go }: Props) {
  const question = workQuery(pageState, '')
  const [pages, setPages] = useState<{ question: string; cursors: string[] }>({ question, cursors: [] })
  const cursors = pages.question === question ? pages.cursors : [] // another question begins at its first page
  const live = useLive<WorkloadView>('workloads', workQuery(pageState, cursors.at(-1) ?? ''))
  const { table } = live
  const turn = (to: string[]) => setPages({ question, cursors: to })

  return (
    <Panel title="Work" className="work" problem={live.problem} aside={<Filters {...{ pageState, queues, go }} />}>
      <SubmitForm
        status={status}
        queues={queues.filter((queue) => queue.is_leaf).map((queue) => queue.name)}
        onSubmitted={(work) => go({ tab: 'active', work })}
      />
      <TabRow pageState={pageState} status={status} go={go} />
      <div className={live.isStale ? 'work-body stale' : 'work-body'} id="work-list">
        {!table ? (
          <Skeleton rows={8} />
        ) : table.rows.length ? (
          <WorkTable rows={table.rows} pageState={pageState} go={go} />
        ) : (
          <NoWork pageState={pageState} status={status} go={go} />
        )}
      </div>
      {table && (table.total > PAGE_SIZE || cursors.length > 0) && (
        <nav className="pager" aria-label="Pages of the list">
          <button type="button" disabled={!cursors.length} onClick={() => turn(cursors.slice(0, -1))}>
            Previous
          </button>
          <span>{rangeWords(cursors.length, table.rows.length, table.total)}</span>
          <button type="button" disabled={!table.next} onClick={() => turn([...cursors, table.next])}>
            Next
          </button>
        </nav>
      )}
    </Panel>
  )
}

/** The numbers follow the filters. */
function TabRow({ pageState, status, go }: Pick<Props, 'pageState' | 'status' | 'go'>) {
  const path = countPath(pageState)
  const { value: filtered } = usePolled<WorkloadCountsView>(path, COUNTS_AGAIN_MS)
  const counts = path ? filtered?.states : status?.workloads
  return (
    <div className="tabs" role="group" aria-label="Which work is shown">
      {(Object.keys(TABS) as Tab[]).map((tab) => (
        <button
          key={tab}
          type="button"
          aria-pressed={pageState.tab === tab}
          aria-controls="work-list"
          onClick={() => go({ tab, sort: '' })}
        >
          {TABS[tab].title}
          {counts && <span className="tab-count">{count(countIn(tab, counts))}</span>}
        </button>
      ))}
    </div>
  )
}

function Filters({ pageState, queues, go }: Pick<Props, 'pageState' | 'queues' | 'go'>) {
  const leaves = queues.filter((queue) => queue.is_leaf)
  return (
    <search className="filters">
      <SearchBox value={pageState.q} onChange={(q) => go({ q })} />
      <select aria-label="Queue" value={pageState.queue} onChange={(event) => go({ queue: event.target.value })}>
        <option value="">All queues</option>
        {pageState.queue && !leaves.some((queue) => queue.name === pageState.queue) && <option>{pageState.queue}</option>}
        {leaves.map((queue) => (
          <option key={queue.name}>{queue.name}</option>
        ))}
      </select>
    </search>
  )
}

const NOTHING: Record<Tab, string> = {
  active: 'No work is running or waiting.',
  running: 'No work is running.',
  waiting: 'No work is waiting: every workload has its GPUs.',
  ended: 'No work has ended yet.',
}

function NoWork({ pageState, status, go }: Pick<Props, 'pageState' | 'status' | 'go'>) {
  if (pageState.q || pageState.queue) {
    return (
      <div className="teach">
        <p>
          No {pageState.tab} work matches{pageState.q && ` “${pageState.q}”`}
          {pageState.queue && ` in queue ${pageState.queue}`}.
        </p>
        <button type="button" onClick={() => go({ q: '', queue: '' })}>
          Clear the filters
        </button>
      </div>
    )
  }
  const isEmpty = !status || Object.values(status.workloads).every((number) => !number)
  return (
    <div className="teach">
      <p>{isEmpty ? 'No work yet. Submit some from a terminal, and it appears here:' : NOTHING[pageState.tab]}</p>
      {isEmpty && <CommandLine>kaiwo submit hello --gpus 1 -- sleep 60</CommandLine>}
    </div>
  )
}
