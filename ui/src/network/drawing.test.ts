import { expect, test } from 'vitest'
import type { NetworkTopologyView, TopologyDomainView, TopologyLinkView } from '../api/views'
import { BOX, drawing, load } from './drawing'

const domain = (name: string, level: string): TopologyDomainView => ({
  name,
  level,
  parents: [],
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
  expect(lines[0]).toMatchObject({ x2: 300, y2: BOX.height })
  expect(width).toBe(600)
})

test('boxes never overlap: a wide level is wider than the room', () => {
  const many = Array.from({ length: 50 }, (_, index) => domain(`l${index}`, 'leaf'))
  const { boxes, width } = drawing({ ...fabric, domains: many, links: [] }, 600)
  expect(width).toBeGreaterThan(600)
  const places = boxes.map((box) => box.x).sort((a, b) => a - b)
  places.slice(1).forEach((x, index) => expect(x - places[index]!).toBeGreaterThanOrEqual(BOX.width))
})

test('load is measured traffic, else what work asked for, else unknown', () => {
  expect(load(link('l0', 's0', { used_mb_s: 200 }))).toBe(0.5)
  expect(load(link('l0', 's0', { used_mb_s: 0 }))).toBe(0)
  expect(load(link('l0', 's0', { asked_mb_s: 100 }))).toBe(0.25)
  expect(load(link('l0', 's0'))).toBeNull()
  expect(load(link('l0', 's0', { dead: 2, used_mb_s: 100 }))).toBe(0.5)
  expect(load(link('l0', 's0', { dead: 4, used_mb_s: 100 }))).toBeNull()
})
