// Where the domains and links of a network are drawn.
//
// In: one topology, and the width there is. Out: rows of boxes, the widest level above, and lines between them.
// Never: draws. A level with more domains than fit in a row gets more rows. Lines to so many boxes would hide each other,
// so `isCrowded` lines are for links that say something: full, dead, or used by the chosen work.

import type { NetworkTopologyView, TopologyDomainView, TopologyLinkView } from '../api/views'
import { compareNaturally } from '../words/order'

export interface DomainBox {
  domain: TopologyDomainView
  x: number
  y: number
}

export interface NetworkLine {
  link: TopologyLinkView | null // null: the lower domain belongs to the upper one, and no link between them is known
  isCrowded: boolean
  x1: number
  y1: number
  x2: number
  y2: number
}

export interface BoxSize {
  width: number
  height: number
  gapX: number
  gapY: number // between rows of one level
}

export interface Drawing {
  levels: { name: string; y: number; domains: number }[]
  boxes: DomainBox[]
  lines: NetworkLine[]
  box: BoxSize
  width: number
  height: number
}

export const ROOMY: BoxSize = { width: 92, height: 40, gapX: 12, gapY: 12 }
export const DENSE: BoxSize = { width: 72, height: 36, gapX: 6, gapY: 6 }
const MOST_ROOMY_ROWS = 3
const LEVEL_GAP = 62

export function drawing(topology: NetworkTopologyView, width: number): Drawing {
  const levels = inOrder(topology)
  const rowsOf = (count: number, box: BoxSize) => Math.ceil(count / perRow(width, box))
  const box = levels.some((level) => rowsOf(level.domains.length, ROOMY) > MOST_ROOMY_ROWS) ? DENSE : ROOMY
  const boxes: DomainBox[] = []
  const crowded = new Set<string>()
  let height = 0
  const placed = levels.map(({ name, domains }) => {
    const y = height ? height + LEVEL_GAP : 0
    const rows = rowsOf(domains.length, box)
    const across = Math.ceil(domains.length / rows)
    domains.forEach((domain, at) => {
      const row = Math.floor(at / across)
      boxes.push({ domain, x: (width / across) * ((at % across) + 0.5) - box.width / 2, y: y + row * (box.height + box.gapY) })
      if (rows > 1) crowded.add(domain.name)
    })
    height = y + rows * (box.height + box.gapY) - box.gapY
    return { name, y, domains: domains.length }
  })
  return { levels: placed, boxes, lines: linesOf(topology, boxes, box, crowded), box, width, height }
}

const perRow = (width: number, box: BoxSize) => Math.max(1, Math.floor((width + box.gapX) / (box.width + box.gapX)))

/** The domains of each level, those of one parent beside each other, in the order a person would count them. */
function inOrder(topology: NetworkTopologyView): { name: string; domains: TopologyDomainView[] }[] {
  const above = new Map<string, number>()
  const placeOf = (domain: TopologyDomainView) => above.get(domain.parents[0] ?? '') ?? Infinity
  const found = []
  for (const { name } of topology.levels) {
    const domains = topology.domains.filter((domain) => domain.level === name)
    if (!domains.length) continue
    domains.sort((a, b) => (placeOf(a) === placeOf(b) ? compareNaturally(a.name, b.name) : placeOf(a) - placeOf(b)))
    domains.forEach((domain, at) => above.set(domain.name, at))
    found.push({ name, domains })
  }
  return found
}

/** From the top of the lower domain to the bottom of the upper one; links of nodes are not drawn. */
function linesOf(topology: NetworkTopologyView, boxes: readonly DomainBox[], box: BoxSize, crowded: ReadonlySet<string>): NetworkLine[] {
  const place = new Map(boxes.map((each) => [each.domain.name, each]))
  const line = (lowerName: string, upperName: string, link: TopologyLinkView | null): NetworkLine[] => {
    const [lower, upper] = [place.get(lowerName), place.get(upperName)]
    if (!lower || !upper) return []
    const ends = { x1: lower.x + box.width / 2, y1: lower.y, x2: upper.x + box.width / 2, y2: upper.y + box.height }
    return [{ link, isCrowded: crowded.has(lowerName) || crowded.has(upperName), ...ends }]
  }
  const known = new Set(topology.links.map((link) => `${link.lower} ${link.upper}`))
  const memberships = topology.domains.flatMap(({ name, parents }) =>
    parents.filter((parent) => !known.has(`${name} ${parent}`)).flatMap((parent) => line(name, parent, null)),
  )
  return [...memberships, ...topology.links.flatMap((link) => line(link.lower, link.upper, link))]
}

/** How full a link is, 0..1: measured traffic, else what work asked for; null: nobody knows. */
export function load(link: TopologyLinkView): number | null {
  const room = link.mb_s * (link.count - link.dead)
  if (room <= 0) return null
  const used = link.used_mb_s >= 0 ? link.used_mb_s : link.asked_mb_s
  return used > 0 || link.used_mb_s >= 0 ? Math.min(1, used / room) : null
}

const FULL = 0.8

/** What a line says beside that it is there; empty: nothing. */
export function lineKind(link: TopologyLinkView, chosen: string): 'dead' | 'chosen' | 'full' | '' {
  if (link.dead >= link.count) return 'dead'
  if (link.used_by.includes(chosen)) return 'chosen'
  return (load(link) ?? 0) > FULL ? 'full' : ''
}
