/**
 * The call record in the database (design "The call"). Contract: `CallRepo`. Every function is one batch
 * to the database that holds the tenant's rows; the SQL is in the modules beside this one.
 */
import type { CallRepo } from "@toolyard/core/ports/calls";
import type { SettingsCaps } from "@toolyard/core/tenants/settings";
import type { Shards } from "../database.ts";
import { admit } from "./calls-admit.ts";
import {
  costsBelow,
  decide,
  family,
  findByOutcome,
  get,
  isCancelRequested,
  list,
  requestCancel,
} from "./calls-control.ts";
import { callReader, type CallSource } from "./calls-rows.ts";
import { claim, heartbeat, letGo, park, reserve, takeSlots, wake } from "./calls-lease.ts";
import { amendOutcome, finish, record, resolveUnknown, settle } from "./calls-settle.ts";
import { expire, sweep } from "./calls-upkeep.ts";
import type { OnBrokenRow } from "./rows.ts";

export function createCallRepo(shards: Shards, caps: SettingsCaps, onBrokenRow: OnBrokenRow): CallRepo {
  const of = (tenant: string) => shards.databaseFor(tenant);
  const reader = callReader(onBrokenRow);
  const from = (tenant: string): CallSource => ({ database: of(tenant), reader });
  return {
    admit: (input) => admit(from(input.tenant), input, caps),
    settle: (tenant, input) => settle(of(tenant), tenant, input),
    record: (tenant, callerId, calls, parent) =>
      record(of(tenant), tenant, { callerId, calls, ...(parent === undefined ? {} : { parent }) }),
    finish: (tenant, id, attempt, end) => finish(of(tenant), tenant, { id, attempt, finish: end }),
    resolveUnknown: (tenant, id, evidence) => resolveUnknown(of(tenant), tenant, { id, finish: evidence }),
    amendOutcome: (tenant, id, text) => amendOutcome(of(tenant), tenant, { id, ...text }),
    findByOutcome: (tenant, wanted) => findByOutcome(from(tenant), tenant, wanted),
    claim: (tenant, id, options) => claim(of(tenant), tenant, { id, ...options }),
    heartbeat: (tenant, id, attempt, beat) => heartbeat(of(tenant), tenant, { id, attempt, ...beat }),
    reserve: (tenant, id, attempt, wanted) => reserve(of(tenant), tenant, { id, attempt, ...wanted }),
    letGo: (tenant, id, attempt, inMs) => letGo(of(tenant), tenant, { id, attempt, inMs }),
    park: (tenant, id, attempt, until) => park(of(tenant), tenant, { id, attempt, ...until }),
    wake: (tenant, id) => wake(of(tenant), tenant, id),
    takeSlots: (tenant, id, wanted, limit) => takeSlots(of(tenant), tenant, { id, wanted, limit }),
    get: (tenant, id) => get(from(tenant), tenant, id),
    list: (tenant, filter, page) => list(from(tenant), tenant, { filter, page }),
    costsBelow: (tenant, ids) => costsBelow(of(tenant), tenant, ids),
    family: (tenant, id, wanted) => family(from(tenant), tenant, { id, ...wanted }),
    requestCancel: (tenant, id) => requestCancel(from(tenant), tenant, id),
    isCancelRequested: (tenant, id) => isCancelRequested(of(tenant), tenant, id),
    decide: (tenant, id, decision) => decide(from(tenant), tenant, { id, ...decision }),
    sweep: (options) => sweep(shards, options),
    expire: (limit) => expire(shards, caps, limit),
  };
}
