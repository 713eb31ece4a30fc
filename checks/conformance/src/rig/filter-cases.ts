/** Filters and what they select: one table for every place where filters are evaluated. */
import { type Filter, type FilterExpression, HeaderValue } from "@millrace/contract"
import { bytes, type Draft } from "./records.ts"

/** Records by name. */
export const filterRecords: Readonly<Record<string, Draft>> = {
  small: {
    payload: '{"kind":"order","amount":5,"tags":["new","eu"],"at":"2026-01-01T12:00:00Z"}',
    headers: { type: "order.created" },
  },
  large: {
    payload:
      '{"kind":"order","amount":5000,"tags":["eu"],"at":"2026-01-01T14:00:00.5+02:00","customer":{"name":"Ana","vip":true}}',
    headers: { type: "order.paid", priority: HeaderValue.int32(9) },
  },
  textual: {
    payload: '{"kind":"order","amount":"5.00","at":"2025-12-31T23:59:60Z","customer":{"name":"ÁGNES"}}',
    headers: { type: "ORDER.PAID" },
  },
  exact: {
    payload: '{"kind":"count","amount":9007199254740993,"at":null}',
    headers: { priority: HeaderValue.int64(9007199254740993n) },
  },
  nothing: { payload: "{}" },
  list: { payload: '[{"kind":"order"},2]', headers: { type: "list" } },
  odd: { payload: '{"a.b":{"c[0]":"\\\\"},"kind":["order"]}' },
  tombstone: { payload: null, headers: { type: "order.deleted" } },
  cbor: {
    payload: Uint8Array.of(0xa1, 0x64, 0x6b, 0x69, 0x6e, 0x64, 0x65, 0x6f, 0x72, 0x64, 0x65, 0x72),
    headers: { "millrace-ct": HeaderValue.uint8(3) },
  },
  declared: { payload: '{"kind":"order","amount":6}', headers: { "millrace-ct": HeaderValue.uint8(1) } },
}

/** A record whose payload is not JSON, for filters that meet a fault. */
export const brokenRecord: Draft = { payload: bytes('{"kind":"order"'), headers: { type: "order.broken" } }

/** A filter and the names of what it selects, in the order of the table. */
export interface FilterCase {
  readonly filter: Filter
  readonly selects: readonly string[]
}

const orders = ["small", "large", "textual", "declared"]

/** One expression an entry, with the default policies. */
const expressions: readonly (readonly [FilterExpression, readonly string[]])[] = [
  [{ path: "kind", op: "eq", value: "order" }, orders],
  [{ path: "kind", op: "ne", value: "order" }, ["exact"]],
  [{ not: { path: "kind", op: "eq", value: "order" } }, ["exact"]],
  [{ path: "amount", op: "gt", value: 5 }, ["large", "exact", "declared"]],
  [{ path: "amount", op: "lte", value: 5 }, ["small"]],
  [{ path: "amount", op: "eq", value: 5, as: "number" }, ["small", "textual"]],
  [{ path: "amount", op: "in", value: [5, "5.00"] }, ["small", "textual"]],
  [{ path: "amount", op: "eq", value: 9007199254740993n }, ["exact"]],
  [{ path: "amount", op: "lt", value: 9007199254740993n }, ["small", "large", "declared"]],
  [{ path: "at", op: "eq", value: "2026-01-01T12:00:00.500Z", as: "rfc3339" }, ["large"]],
  [{ path: "at", op: "lte", value: "2026-01-01T00:00:00Z", as: "rfc3339" }, ["textual"]],
  [{ path: "at", op: "eq", value: null }, ["exact", "nothing", "list", "odd", "tombstone", "declared"]],
  [{ path: "at", op: "present" }, ["small", "large", "textual", "exact"]],
  [{ path: "kind", op: "absent" }, ["nothing", "list", "tombstone"]],
  [{ path: "[0].kind", op: "eq", value: "order" }, ["list"]],
  [{ path: "a\\.b.c\\[0\\]", op: "eq", value: "\\" }, ["odd"]],
  [{ path: "tags", op: "contains", value: "new" }, ["small"]],
  [{ path: "kind", op: "contains", value: "ord" }, orders],
  [{ path: "customer.name", op: "prefix", value: "ág", caseInsensitive: true }, ["textual"]],
  [{ path: "customer.vip", op: "eq", value: true }, ["large"]],
  [{ header: "type", op: "glob", value: "order.?a*" }, ["large"]],
  [{ header: "type", op: "glob", value: "order.?a*", caseInsensitive: true }, ["large", "textual"]],
  [{ header: "type", op: "regex", value: "^order\\.(paid|deleted)$" }, ["large", "tombstone"]],
  [{ header: "type", op: "suffix", value: ".created" }, ["small"]],
  [{ header: "type", op: "equals", value: "order.paid", caseInsensitive: true }, ["large", "textual"]],
  [{ header: "priority", op: "gte", value: 9 }, ["large", "exact"]],
  [{ header: "priority", op: "eq", value: 9007199254740993n }, ["exact"]],
  [{ header: "type", op: "absent" }, ["exact", "nothing", "odd", "cbor", "declared"]],
  [
    {
      all: [
        { header: "type", op: "prefix", value: "order." },
        { path: "amount", op: "gte", value: 5 },
        { not: { path: "customer", op: "present" } },
      ],
    },
    ["small"],
  ],
  [
    {
      any: [
        { path: "amount", op: "gt", value: 1000 },
        { header: "type", op: "eq", value: "list" },
      ],
    },
    ["large", "exact", "list"],
  ],
]

/** All cases over `filterRecords`. */
export const filterCases: readonly FilterCase[] = [
  ...expressions.map(([where, selects]) => ({ filter: { where }, selects })),
  {
    filter: { where: { path: "kind", op: "eq", value: "order" }, foreign: "pass" },
    selects: ["small", "large", "textual", "cbor", "declared"],
  },
  {
    filter: { where: { path: "kind", op: "eq", value: "order" }, mismatch: "pass" },
    selects: ["small", "large", "textual", "odd", "declared"],
  },
  { filter: { where: { path: "kind", op: "present" }, codec: "cbor", fault: "drop" }, selects: ["cbor"] },
  {
    filter: { where: { header: "type", op: "present" }, codec: "headersOnly" },
    selects: ["small", "large", "textual", "list", "tombstone"],
  },
]
