// One cycle, decided again by the server: what it saw, whom it started where and why there, whom it stopped, what waits.

import { useEffect, useRef } from 'react'
import type { CandidateView, CycleDetailView, CycleEvictionView, CycleStartView, CycleWaitView } from '../api/views'
import { usePolled } from '../live/hooks'
import { CommandLine, ErrorMessage, Skeleton } from '../page/Panel'
import { type Column, PlainTable } from '../page/PlainTable'
import { count, counted } from '../words/amounts'
import { deviceWords, shortName } from '../words/work'

const ONCE_MS = 3_600_000 // a past cycle does not change

interface Props {
  number: number
  onPick: (workload: string) => void
  onClose: () => void
}

export function CycleDetail({ number, onPick, onClose }: Props) {
  const { value, problem } = usePolled<CycleDetailView>(`/cycles/${number}`, ONCE_MS)
  const heading = useRef<HTMLHeadingElement>(null)
  useEffect(() => heading.current?.focus(), [number]) // it stands above the list, which may be scrolled
  return (
    <section className="replay" aria-labelledby="cycle-title">
      <div className="section-head">
        <h3 id="cycle-title" ref={heading} tabIndex={-1}>
          Cycle {count(number)}
        </h3>
        <button type="button" aria-label="Close the cycle" onClick={onClose}>
          Close
        </button>
      </div>
      {problem && <ErrorMessage>{problem}</ErrorMessage>}
      {!value && !problem && <Skeleton rows={3} />}
      {value && <Found found={value} onPick={onPick} />}
      <p className="muted">In a terminal:</p>
      <CommandLine>{`kaiwo replay ${number} --scores`}</CommandLine>
    </section>
  )
}

function Found({ found, onPick }: { found: CycleDetailView; onPick: Props['onPick'] }) {
  const work = (name: string) => (
    <button type="button" className="link work-link" onClick={() => onPick(name)}>
      {shortName(name)}
    </button>
  )
  const starts: Column<CycleStartView>[] = [
    { title: 'Started', cell: (row) => work(row.workload) },
    { title: 'Pod', cell: (row) => row.pod },
    { title: 'On', cell: (row) => [row.node, row.devices.map(deviceWords).join(', ')].filter(Boolean).join(': ') },
    { title: 'Room on', cell: (row) => (row.fits ? counted(row.fits, 'node') : 'its kept place') },
    { title: 'Score, and of the next best', cell: (row) => <Candidates candidates={row.candidates} /> },
  ]
  const evictions: Column<CycleEvictionView>[] = [
    { title: 'Stopped', cell: (row) => work(row.workload) },
    { title: 'Pod', cell: (row) => row.pod },
    { title: 'On', cell: (row) => row.node },
    { title: 'Cause', cell: (row) => row.cause },
    { title: 'For', cell: (row) => row.beneficiary && work(row.beneficiary) },
  ]
  return (
    <>
      <p>
        It saw {counted(found.nodes, 'node')} and {counted(found.waiting, 'waiting workload')}. Decided again, it gives{' '}
        {found.is_same ? 'the same plan, byte for byte' : 'a different plan'}.
      </p>
      {found.differences.map((difference) => (
        <p key={difference} className="muted">
          {difference}
        </p>
      ))}
      {found.starts.length > 0 && <PlainTable columns={starts} rows={found.starts} rowKey={(row) => `${row.workload}/${row.pod}`} />}
      {found.evictions.length > 0 && <PlainTable columns={evictions} rows={found.evictions} rowKey={(row) => `${row.workload}/${row.pod}`} />}
      {found.waits.length > 0 && <PlainTable columns={WAITS} rows={found.waits} rowKey={(row) => `${row.queue} ${row.shape}`} />}
    </>
  )
}

const WAITS: Column<CycleWaitView>[] = [
  { title: 'Waits in', cell: (row) => row.queue },
  { title: 'Because', cell: (row) => row.reasons.join('; ') || 'nothing keeps it any more' },
]

/** "node-1: 9,000 = fragmentation 900 x 10", and the next best nodes. */
function Candidates({ candidates }: { candidates: readonly CandidateView[] }) {
  return (
    <ul className="candidates">
      {candidates.map(({ node, words }) => (
        <li key={node}>
          {node}: <span className="muted">{words}</span>
        </li>
      ))}
    </ul>
  )
}
