// Everything about one workload, beside the list it was chosen from.

import { useEffect, useRef, useState } from 'react'
import { workloadPath } from '../api/client'
import type { WhyView, WorkloadDetail } from '../api/views'
import { usePolled } from '../live/hooks'
import { Past } from '../past/Past'
import { Skeleton, StateMark, ErrorMessage, WorkName } from '../page/Panel'
import { isWaiting } from '../words/work'
import { Actions } from './Actions'
import { ChangeForm } from './ChangeForm'
import { Facts } from './Facts'
import { PodPlacements } from './PodPlacements'
import { Why } from './Why'

const DETAIL_AGAIN_MS = 2000
const WHY_AGAIN_MS = 5000

export function Detail({ name, onClose }: { name: string; onClose: () => void }) {
  const [acted, setActed] = useState(0) // counts what was done here, so that the answers are asked for at once
  const detail = usePolled<WorkloadDetail>(workloadPath(name), DETAIL_AGAIN_MS, String(acted))
  const work = detail.value?.summary
  const waits = work !== undefined && isWaiting(work.state)
  const why = usePolled<WhyView>(waits ? `${workloadPath(name)}/why` : '', WHY_AGAIN_MS, `${work?.state} ${work?.reason}`)
  const heading = useFocusWhileOpen(name)

  return (
    <aside className="detail" aria-labelledby="detail-title" onKeyDown={(event) => event.key === 'Escape' && onClose()}>
      <header className="detail-head">
        <div>
          <h2 id="detail-title" ref={heading} tabIndex={-1}>
            <WorkName name={name} />
          </h2>
          {work && (
            <p>
              <StateMark state={work.state} /> <span className="muted">{work.wants}</span>
            </p>
          )}
        </div>
        <button type="button" className="icon" aria-label="Close the details" onClick={onClose}>
          <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
            <path d="m3 3 10 10m0-10L3 13" fill="none" stroke="currentColor" strokeWidth="1.6" />
          </svg>
        </button>
      </header>
      {detail.problem && <ErrorMessage>{detail.problem}</ErrorMessage>}
      {!detail.value || !work ? (
        !detail.problem && <Skeleton rows={6} />
      ) : (
        <>
          <Actions work={work} mayDo={detail.value.may_do} onDone={() => setActed(acted + 1)} />
          <ChangeForm key={name} detail={detail.value} onDone={() => setActed(acted + 1)} />
          {detail.value.message && <p className="answer">{detail.value.message}</p>}
          {waits && (
            <Why
              why={why.value}
              problem={why.problem}
              obstacles={detail.value.obstacles}
              planned={work.state === 'waiting' ? (why.value ?? detail.value).planned : ''}
            />
          )}
          <PodPlacements pods={detail.value.placed} />
          <Past key={`past ${name}`} detail={detail.value} />
          <Facts detail={detail.value} />
        </>
      )}
    </aside>
  )
}

/** The heading takes the focus when a workload is chosen; what was chosen from gets it back at the end. */
function useFocusWhileOpen(name: string) {
  const heading = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    const before = document.activeElement
    if (before instanceof HTMLElement && before !== document.body) heading.current?.focus({ preventScroll: true })
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus({ preventScroll: true })
    }
  }, [name])
  return heading
}
