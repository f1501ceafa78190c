import { expect, test } from 'vitest'
import type { NetworkTopologyView, TopologyDomainView, TopologyLinkView } from '../api/views'
import { DENSE, type DomainBox, ROOMY, drawing, lineKind, load } from './drawing'

const domain = (name: string, level: string, parents: string[] = []): TopologyDomainView => ({
  name,
  level,
  parents,
  nodes: [],
  gpu_milli: 0,
  free_gpu_milli: 0,
  links: 1,
  dead_links: 0,
  link_mb_s: 0,
  port_mb_s: 0,
  oversubscription_milli: 0,
  active_nodes: 0,
  share_mb_s: 0,
  used_by: [],
  asked_mb_s: 0,
  sent_mb_s: -1,
  speed_percent: 0,
})

const link = (lower: string, upper: string, change: Partial<TopologyLinkView> = {}): TopologyLinkView => ({
  lower,
  upper,
  mb_s: 100,
  count: 4,
  dead: 0,
  state: 'up',
  used_mb_s: -1,
  used_by: [],
  asked_mb_s: 0,
  most_mb_s: -1,
  ...change,
})

const fabric: NetworkTopologyView = {
  name: 'fabric',
  source: 'file',
  fault: '',
  levels: [
    { name: 'spine', node_label: '', domains: 1, nodes: 4 },
    { name: 'leaf', node_label: '', domains: 2, nodes: 4 },
    { name: 'rack', node_label: '', domains: 0, nodes: 0 },
  ],
  domains: [domain('s0', 'spine'), domain('l0', 'leaf'), domain('l1', 'leaf')],
  links: [link('l0', 's0'), link('l1', 's0'), link('node-1', 'l0')],
  findings: [],
  access: [],
}

test('the widest level is above, and links join boxes', () => {
  const { boxes, lines, levels, width } = drawing(fabric, 600)
  expect(levels.map((level) => level.name)).toEqual(['spine', 'leaf'])
  expect(boxes.find((box) => box.domain.name === 's0')?.y).toBe(0)
  expect(lines).toHaveLength(2)
  expect(lines[0]).toMatchObject({ x2: 300, y2: ROOMY.height })
  expect(width).toBe(600)
})

test('a level with more domains than fit has more rows, in the order a person counts', () => {
  const many = Array.from({ length: 250 }, (_, index) => domain(`l${index + 1}`, 'leaf', ['s0']))
  many.sort((a, b) => (a.name < b.name ? -1 : 1)) // as the server sends them: l1, l10, l100
  const { boxes, width, height, box, lines } = drawing({ ...fabric, domains: [domain('s0', 'spine'), ...many], links: [link('l1', 's0')] }, 1300)
  expect([box, width]).toEqual([DENSE, 1300])
  expect(height).toBeLessThan(800)
  expect(boxes.slice(1, 4).map((each) => each.domain.name)).toEqual(['l1', 'l2', 'l3'])
  expect(boxes.every(({ x }) => x > -0.01 && x + box.width < width + 0.01)).toBe(true)
  const areNear = (a: DomainBox, b: DomainBox) => Math.abs(a.x - b.x) < box.width && Math.abs(a.y - b.y) < box.height
  expect(boxes.some((a, index) => boxes.slice(index + 1).some((b) => areNear(a, b)))).toBe(false)
  expect(lines.every((line) => line.isCrowded)).toBe(true)
})

test('domains of one parent are beside each other, and belong to it by a line where no link is known', () => {
  const domains = [domain('s1', 'spine'), domain('s2', 'spine'), domain('a', 'leaf', ['s2']), domain('b', 'leaf', ['s1'])]
  const { boxes, lines } = drawing({ ...fabric, domains, links: [link('b', 's1')] }, 600)
  expect(boxes.map((box) => box.domain.name)).toEqual(['s1', 's2', 'b', 'a'])
  expect(lines.map((line) => line.link?.lower ?? '')).toEqual(['', 'b'])
})

test('a line says that a link is dead, used by the chosen work, or full', () => {
  expect(lineKind(link('a', 'b', { dead: 4 }), 'w')).toBe('dead')
  expect(lineKind(link('a', 'b', { used_by: ['w'] }), 'w')).toBe('chosen')
  expect(lineKind(link('a', 'b', { used_mb_s: 390 }), 'w')).toBe('full')
  expect(lineKind(link('a', 'b'), 'w')).toBe('')
})

test('load is measured traffic, else what work asked for, else unknown', () => {
  expect(load(link('l0', 's0', { used_mb_s: 200 }))).toBe(0.5)
  expect(load(link('l0', 's0', { used_mb_s: 0 }))).toBe(0)
  expect(load(link('l0', 's0', { asked_mb_s: 100 }))).toBe(0.25)
  expect(load(link('l0', 's0'))).toBeNull()
  expect(load(link('l0', 's0', { dead: 2, used_mb_s: 100 }))).toBe(0.5)
  expect(load(link('l0', 's0', { dead: 4, used_mb_s: 100 }))).toBeNull()
})
