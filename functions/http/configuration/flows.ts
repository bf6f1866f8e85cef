/** Published flows with the addresses that start them; drafts and earlier versions are in no document. */
import { requireMayRunTools } from "@toolyard/core/callers/grant";
import { isSame, pairUp, toPlain } from "@toolyard/core/configuration/compare";
import type { Kind, Work } from "@toolyard/core/configuration/kind";
import { unlessUsed } from "@toolyard/core/configuration/unless-used";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { readEveryPage } from "@toolyard/core/every-page";
import { canonicalJson, isJsonObject, parseJson, type JsonObject, type JsonValue } from "@toolyard/core/json";
import { mostOf } from "@toolyard/core/ports/limits";
import * as z from "zod";
import { nameField } from "../routes/shared.ts";
import { ask, idIn, liveAt, mapSome, objectOf, parseBy, textIn, type RouteOf } from "./part.ts";

// oxlint-disable-next-line typescript/explicit-function-return-type
const validate = () => import("@toolyard/core/flows/validate");

const hookSchema = z.strictObject({
  name: nameField,
  signed: z.boolean().default(false),
  enabled: z.boolean().default(true),
});

const flowSchema = z.strictObject({
  enabled: z.boolean().default(true),
  definition: z.custom<JsonObject>(isJsonObject, "Invalid input: expected object"),
  hooks: z.array(hookSchema).max(mostOf.flowHooks).default([]),
});

interface Hook {
  readonly id: string;
  readonly name: string;
  /** As it stands in a document. */
  readonly item: JsonObject;
}

async function hooksOf({ core, context }: Work, flowId: string): Promise<readonly Hook[]> {
  const hooks = await readEveryPage(async (page) => {
    const found = await core.repos.flows.listHooks(context.tenant, { flowId, isShipped: false }, page);
    return found ?? { data: [], hasMore: false };
  });
  return hooks.map(({ id, name, signed, enabled }) => ({ id, name, item: { name, signed, enabled } }));
}

const inOrder = (hooks: readonly JsonObject[]): JsonObject[] =>
  hooks.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));

const keyOf = (hook: JsonObject): string => `${textIn(hook, "name")}\n${canonicalJson(hook)}`;

const hooksIn = (item: JsonValue): readonly JsonObject[] => {
  const { hooks } = objectOf(item);
  return Array.isArray(hooks) ? hooks.map(objectOf) : [];
};

type FlowRoutes = RouteOf<
  "createFlow" | "updateFlow" | "publishFlow" | "deleteFlow" | "createFlowHook" | "updateFlowHook" | "deleteFlowHook"
>;

/** The draft of a flow of this name that was never published makes room for the document's; few have one. */
async function create(route: FlowRoutes, work: Work, body: JsonObject): Promise<string> {
  try {
    return idIn(await ask(work, route("createFlow"), { body: { ...body, publish: true } }));
  } catch (error) {
    if (!(error instanceof GatewayError) || error.code !== "conflict") throw error;
    const { core, context } = work;
    const name = textIn(body["definition"] ?? null, "name");
    const all = await readEveryPage((page) => core.repos.flows.list(context.tenant, page));
    const draft = all.find((flow) => flow.name === name && flow.latest === null);
    if (draft === undefined) throw error;
    await change(route, work, draft.id, body);
    return draft.id;
  }
}

async function change(route: FlowRoutes, work: Work, id: string, body: JsonObject): Promise<void> {
  if (Object.keys(body).length > 0) await ask(work, route("updateFlow"), { params: { id }, body });
  if ("definition" in body) await ask(work, route("publishFlow"), { params: { id }, body: {} });
}

async function writeHooks(route: FlowRoutes, work: Work, id: string, wanted: readonly JsonObject[]): Promise<void> {
  const there = await hooksOf(work, id);
  const asked = wanted.map((item) => ({ name: textIn(item, "name"), item }));
  for (const { one, other } of pairUp(asked, there)) {
    const { name, signed, enabled } = one?.item ?? {};
    // Signed or not, it is another address.
    const isOther = other !== undefined && signed !== other.item["signed"];
    if (other !== undefined && (one === undefined || isOther)) {
      await ask(work, route("deleteFlowHook"), { params: { id, hook: other.id } });
    }
    if (one === undefined) continue;
    const isNew = other === undefined || isOther;
    const hook = isNew
      ? idIn(await ask(work, route("createFlowHook"), { params: { id }, body: { name, signed } }))
      : other.id;
    if (enabled !== (isNew ? true : other.item["enabled"])) {
      await ask(work, route("updateFlowHook"), { params: { id, hook }, body: { enabled } });
    }
  }
}

export const flows = (route: FlowRoutes): Kind => ({
  identify: (item) => textIn(objectOf(item)["definition"] ?? null, "name"),
  async read(work) {
    const { core, context } = work;
    const read = await mapSome(context.config.flows, async ({ id, enabled, versions }) => {
      const hash = versions.at(-1)?.hash ?? "";
      const [text, hooks] = await Promise.all([core.repos.flows.definition(context.tenant, hash), hooksOf(work, id)]);
      if (text === undefined) return [];
      return [liveAt(id, { enabled, definition: parseJson(text), hooks: inOrder(hooks.map(({ item }) => item)) })];
    });
    return read.flat();
  },
  parse(_work, item) {
    const parsed = parseBy(flowSchema, item);
    return { ...parsed, hooks: inOrder(hooksIn(parsed)) };
  },
  async write(work, { item, before, changed }) {
    const { definition = null, enabled } = objectOf(item);
    const { requireFlow } = await validate();
    await requireFlow(definition);
    const isHooked = !isSame(toPlain(hooksIn(before?.item ?? null)), toPlain(hooksIn(item)));
    if (isHooked && hooksIn(item).length > 0) requireMayRunTools(work.context.caller, "a hook");
    const id = before?.id ?? (await create(route, work, objectOf(toPlain({ definition, enabled }))));
    if (before !== undefined) await change(route, work, id, fieldsIn(changed, ["definition", "enabled"]));
    if (isHooked) await writeHooks(route, work, id, hooksIn(item));
    return id;
  },
  async remove(work, { id }) {
    await unlessUsed(work, (force) =>
      ask(work, route("deleteFlow"), { params: { id }, query: { force: String(force) } }),
    );
  },
  place: (param) => {
    if (/^(?:enabled|hooks|definition)\b/.test(param)) return param;
    return `definition.${param.replace(/^\//, "").replaceAll("/", ".")}`;
  },
  async foresee(config, { item, before }) {
    const { requireFlow } = await validate();
    const { definition: given = null, enabled } = objectOf(item);
    const { name, description, input, effect } = (await requireFlow(given)).definition;
    const versions = [{ number: 1, hash: "" }];
    const head = { name, enabled: enabled === true, latest: 1, description, input, effect, versions };
    const others = config.flows.filter((flow) => flow.name !== name);
    return { ...config, flows: [...others, { ...head, id: before?.id ?? "new" }] };
  },
  without: (config, { id }) => ({ ...config, flows: config.flows.filter((flow) => flow.id !== id) }),
  async room({ core, context }) {
    const all = await readEveryPage((page) => core.repos.flows.list(context.tenant, page));
    return { most: mostOf.flows, there: all.length, called: "flows" };
  },
});

function fieldsIn(changed: JsonObject, fields: readonly string[]): JsonObject {
  return Object.fromEntries(Object.entries(changed).filter(([name]) => fields.includes(name)));
}
