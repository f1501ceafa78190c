// The network: its levels from the widest to the narrowest, the links between them, and who uses them.

import { useMemo, useRef, useState } from 'react'
import type { NetworkTopologyView, TopologyDomainView, TopologyFindingView, TopologyView } from '../api/views'
import { usePolled } from '../live/hooks'
import { useBox } from '../map/useBox'
import { ErrorMessage, Panel, Skeleton } from '../page/Panel'
import { count, counted, gpuNumber, gpus } from '../words/amounts'
import { shortName } from '../words/work'
import { type Drawing, type NetworkLine, drawing, lineKind, load } from './drawing'

const AGAIN_MS = 5000

interface Props {
  chosen: string // the selected workload: the domains it runs in are framed
  onPick: (workload: string) => void
}

export function NetworkPage({ chosen, onPick }: Props) {
  const { value, problem } = usePolled<TopologyView>('/topology', AGAIN_MS)
  if (!value) {
    return (
      <Panel title="Network" problem={problem}>
        {!problem && <Skeleton rows={4} tall />}
      </Panel>
    )
  }
  return (
    <>
      {problem && <ErrorMessage>{problem}</ErrorMessage>}
      {[...value.faults, ...value.contradictions.map(findingWords)].map((sentence) => (
        <ErrorMessage key={sentence}>{sentence}</ErrorMessage>
      ))}
      {!value.topologies.length && (
        <Panel title="Network">
          <p className="teach">
            Kaiwo knows no network: no node has labels of leaves and spines, and no topology was given. Work is placed as if all
            nodes were equally near.
          </p>
        </Panel>
      )}
      {value.topologies.map((topology) => (
        <TopologyPanel key={topology.name} {...{ topology, chosen, onPick }} />
      ))}
    </>
  )
}

const findingWords = (finding: TopologyFindingView) => `${finding.subject}: ${finding.detail}`

function TopologyPanel({ topology, chosen, onPick }: Props & { topology: NetworkTopologyView }) {
  const [name, setName] = useState('')
  const place = useRef<HTMLDivElement>(null)
  const { width } = useBox(place)
  const drawn = useMemo(() => drawing(topology, Math.max(width, 300)), [topology, width])
  const domain = topology.domains.find((each) => each.name === name)
  const aside = topology.levels.map((level) => counted(level.domains, level.name, plural(level.name))).join(', ')
  return (
    <Panel title={`Network ${topology.name}`} aside={`${aside}; from ${topology.source}`} problem={topology.fault}>
      <div className="network-window" ref={place}>
        <Picture {...{ drawn, chosen, name, onChoose: (next) => setName(next === name ? '' : next) }} />
      </div>
      <Legend drawn={drawn} />
      {domain && <DomainFacts domain={domain} onPick={onPick} />}
      {topology.findings.length > 0 && (
        <details>
          <summary>{counted(topology.findings.length, 'thing', 'things')} to know about this network</summary>
          <ul className="findings">
            {topology.findings.map((finding) => (
              <li key={finding.kind + finding.subject + finding.detail}>{findingWords(finding)}</li>
            ))}
          </ul>
        </details>
      )}
    </Panel>
  )
}

const plural = (level: string) => (level.endsWith('leaf') ? `${level.slice(0, -1)}ves` : `${level}s`)

interface PictureProps {
  drawn: Drawing
  chosen: string
  name: string
  onChoose: (domain: string) => void
}

function Picture({ drawn, chosen, name, onChoose }: PictureProps) {
  return (
    <div className="network" style={{ width: drawn.width, height: drawn.height }}>
      <svg width={drawn.width} height={drawn.height} aria-hidden="true">
        {drawn.lines.map((line, index) => (
          <Line key={line.link ? `${line.link.lower} ${line.link.upper}` : index} line={line} chosen={chosen} />
        ))}
      </svg>
      {drawn.boxes.map(({ domain, x, y }) => (
        <button
          key={domain.name}
          type="button"
          className={boxClass(domain, chosen)}
          aria-pressed={domain.name === name}
          style={{ left: x, top: y, width: drawn.box.width, height: drawn.box.height }}
          title={domain.name}
          onClick={() => onChoose(domain.name)}
        >
          <span className="domain-name">{domain.name}</span>
          <span className="domain-use">
            <span className="meter" aria-hidden="true">
              <span style={{ width: `${usedPercent(domain)}%` }} />
            </span>
            <span className="domain-percent">{usedPercent(domain)} %</span>
          </span>
        </button>
      ))}
    </div>
  )
}

function Line({ line, chosen }: { line: NetworkLine; chosen: string }) {
  const { link, isCrowded, ...ends } = line
  if (!link) return isCrowded ? null : <line className="link membership" {...ends} />
  const kind = lineKind(link, chosen)
  if (isCrowded && !kind && !link.dead) return null
  return <line className={`link ${kind}`} {...ends} strokeWidth={1 + 4 * (load(link) ?? 0)} strokeDasharray={link.dead ? '5 4' : undefined} />
}

const usedPercent = (domain: TopologyDomainView) =>
  domain.gpu_milli ? Math.floor((100 * (domain.gpu_milli - domain.free_gpu_milli)) / domain.gpu_milli) : 0

function boxClass(domain: TopologyDomainView, chosen: string): string {
  const classes = ['domain']
  if (chosen && domain.used_by.includes(chosen)) classes.push('chosen')
  if (domain.dead_links) classes.push('hurt')
  return classes.join(' ')
}

function Legend({ drawn }: { drawn: Drawing }) {
  const links = drawn.lines.filter((line) => line.link)
  return (
    <p className="muted network-legend">
      A bar is the part of a domain's GPUs that is allocated.{' '}
      {links.length > 0 ? 'A link is as thick as it is full, and dashed where some of its cables are dead.' : 'No links are known.'}
      {drawn.lines.some((line) => !line.link && !line.isCrowded) && ' A faint line says which domain belongs to which.'}
      {links.some((line) => line.isCrowded) &&
        ' Of levels with more than one row, only links that are full, dead or used by the chosen work are drawn.'}
    </p>
  )
}

function DomainFacts({ domain, onPick }: { domain: TopologyDomainView; onPick: (workload: string) => void }) {
  const used = domain.gpu_milli - domain.free_gpu_milli
  return (
    <section className="domain-facts" aria-label={`${domain.level} ${domain.name}`}>
      <h3>
        {domain.name} <span className="muted">{domain.level}</span>
      </h3>
      <dl className="facts">
        <Fact name="Nodes">{`${counted(domain.nodes.length, 'node')}, ${count(domain.active_nodes)} with traffic that leaves it`}</Fact>
        <Fact name="GPUs">{`${gpuNumber(used)} of ${gpus(domain.gpu_milli)} allocated`}</Fact>
        <Fact name="Links">{linkWords(domain)}</Fact>
        {domain.sent_mb_s >= 0 && <Fact name="Measured">{`${rate(domain.sent_mb_s)} on the ports of its nodes`}</Fact>}
        {domain.speed_percent > 0 && <Fact name="Speed">{`work runs at ${domain.speed_percent} % of the usual speed`}</Fact>}
      </dl>
      {domain.used_by.length > 0 && (
        <p>
          Work over its links:{' '}
          {domain.used_by.map((workload) => (
            <button key={workload} type="button" className="link work-link" onClick={() => onPick(workload)}>
              {shortName(workload)}
            </button>
          ))}
        </p>
      )}
    </section>
  )
}

function Fact({ name, children }: { name: string; children: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  )
}

function linkWords(domain: TopologyDomainView): string {
  if (!domain.links) return 'none known'
  const parts = [counted(domain.links, 'link'), domain.link_mb_s > 0 && rate(domain.link_mb_s)]
  if (domain.dead_links) parts.push(`${count(domain.dead_links)} dead`)
  if (domain.oversubscription_milli > 1000) parts.push(`oversubscribed ${(domain.oversubscription_milli / 1000).toFixed(1)} to 1`)
  if (domain.asked_mb_s) parts.push(`${rate(domain.asked_mb_s)} asked for`)
  return parts.filter(Boolean).join(', ')
}

const rate = (mb_s: number) => (mb_s >= 1000 ? `${count(Math.round(mb_s / 1000))} GB/s` : `${count(mb_s)} MB/s`)
