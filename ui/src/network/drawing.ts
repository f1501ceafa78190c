// Where the domains and links of a network are drawn.
//
// In: one topology, and the width there is. Out: rows of boxes, the widest level above, and lines between them.
// Never: draws. A level with more domains than fit is as wide as they need, and the drawing scrolls.

import type { NetworkTopologyView, TopologyDomainView, TopologyLinkView } from '../api/views'

export interface DomainBox {
  domain: TopologyDomainView
  x: number
  y: number
}

export interface LinkLine {
  link: TopologyLinkView
  x1: number
  y1: number
  x2: number
  y2: number
}

export interface Drawing {
  levels: { name: string; y: number; domains: number }[]
  boxes: DomainBox[]
  lines: LinkLine[]
  width: number
  height: number
}

export const BOX = { width: 92, height: 40, gapX: 12, gapY: 62 }

export function drawing(topology: NetworkTopologyView, room: number): Drawing {
  const rows = topology.levels
    .map((level) => ({ name: level.name, domains: topology.domains.filter((domain) => domain.level === level.name) }))
    .filter((row) => row.domains.length > 0)
  const most = Math.max(0, ...rows.map((row) => row.domains.length))
  const width = Math.max(room, most * (BOX.width + BOX.gapX) - BOX.gapX)
  const boxes: DomainBox[] = []
  const levels = rows.map((row, index) => {
    const y = index * (BOX.height + BOX.gapY)
    const step = width / row.domains.length
    row.domains.forEach((domain, at) => boxes.push({ domain, x: step * (at + 0.5) - BOX.width / 2, y }))
    return { name: row.name, y, domains: row.domains.length }
  })
  const place = new Map(boxes.map((box) => [box.domain.name, box]))
  return {
    levels,
    boxes,
    lines: topology.links.flatMap((link) => lineOf(link, place)),
    width,
    height: levels.length ? (levels.at(-1)?.y ?? 0) + BOX.height : 0,
  }
}

/** From the top of the lower domain to the bottom of the upper one; links of nodes are not drawn. */
function lineOf(link: TopologyLinkView, place: ReadonlyMap<string, DomainBox>): LinkLine[] {
  const [lower, upper] = [place.get(link.lower), place.get(link.upper)]
  if (!lower || !upper) return []
  return [
    {
      link,
      x1: lower.x + BOX.width / 2,
      y1: lower.y,
      x2: upper.x + BOX.width / 2,
      y2: upper.y + BOX.height,
    },
  ]
}

/** How full a link is, 0..1: measured traffic, else what work asked for; null: nobody knows. */
export function load(link: TopologyLinkView): number | null {
  const room = link.mb_s * (link.count - link.dead)
  if (room <= 0) return null
  const used = link.used_mb_s >= 0 ? link.used_mb_s : link.asked_mb_s
  return used > 0 || link.used_mb_s >= 0 ? Math.min(1, used / room) : null
}
