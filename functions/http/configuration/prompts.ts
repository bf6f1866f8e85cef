/** What models are told: knowledge bases, variables, what the Tavern has, agents. */
import { toPlain } from "@toolyard/core/configuration/compare";
import type { Kind, Live, Work } from "@toolyard/core/configuration/kind";
import { unlessUsed } from "@toolyard/core/configuration/unless-used";
import { readEveryPage } from "@toolyard/core/every-page";
import { changeConfig, knowledgeConfigChangeSchema, usualConfig } from "@toolyard/core/knowledge/config";
import { mostOf } from "@toolyard/core/ports/limits";
import type { TavernKind } from "@toolyard/core/ports/tavern";
import { mostVariables, variableOptionsSchema } from "@toolyard/core/vcp/placeholders/variable";
import { tavernNameSchema } from "@toolyard/core/vcp/tavern/preset";
import { isOfKind, readTavernItems } from "@toolyard/core/vcp/tavern/store";
import * as z from "zod";
import { baseNames } from "./knowledge-names.ts";
import {
  ask,
  idIn,
  joinedName,
  liveAt,
  mapSome,
  objectOf,
  parseBody,
  parseBy,
  picked,
  textIn,
  type RouteOf,
} from "./part.ts";

export const knowledgeBases = (
  route: RouteOf<"createKnowledgeBase" | "updateKnowledgeConfig" | "deleteKnowledgeBase">,
): Kind => ({
  identify: (item) => textIn(item, "name"),
  async read({ core, context }) {
    const bases = await readEveryPage((page) => core.repos.knowledge.listBases(context.tenant, page));
    // What it is being built anew for is what somebody wanted.
    return bases.map(({ id, name, config, next }) => liveAt(id, { name, config: next?.config ?? config }));
  },
  parse(_work, item) {
    const { name = null, config } = parseBody(route("createKnowledgeBase"), item);
    return { name, config: toPlain(changeConfig(usualConfig, knowledgeConfigChangeSchema.parse(config))) };
  },
  async write(work, { item, before }) {
    if (before === undefined) return idIn(await ask(work, route("createKnowledgeBase"), { body: item }));
    const { config } = objectOf(item);
    await ask(work, route("updateKnowledgeConfig"), { body: { knowledge_base: before.id, config } });
    return before.id;
  },
  async remove(work, { id }) {
    await ask(work, route("deleteKnowledgeBase"), { body: { knowledge_base: id } });
  },
  async room({ core, context }) {
    const bases = await readEveryPage((page) => core.repos.knowledge.listBases(context.tenant, page));
    return { most: context.config.settings.knowledge_bases, there: bases.length, called: "knowledge bases" };
  },
});

// Variables

/** Where one stands among the others is part of what it means, so a document says it. */
const positionSchema = z.looseObject({ position: z.int() });
const optionNames = Object.keys(variableOptionsSchema.shape);

/** Few requests are about variables. */
// oxlint-disable-next-line typescript/explicit-function-return-type
const variables = () => import("@toolyard/core/vcp/placeholders/register");

export const vcpVariables = (route: RouteOf<"createVcpVariable" | "deleteVcpVariable">): Kind => ({
  identify: (item) => joinedName([textIn(item, "kind"), textIn(item, "name")], "/"),
  async read({ core, context }) {
    const { readVariable } = await variables();
    const read = await mapSome(context.config.variables, async (entry) => {
      const whole =
        entry.content === null ? await readVariable(core, context.tenant, entry.id) : { entry, content: entry.content };
      const { kind, name, position, options } = entry;
      return whole === undefined
        ? []
        : [liveAt(entry.id, { kind, name, content: whole.content, position, ...options })];
    });
    return read.flat();
  },
  parse(_work, item) {
    const variable = parseBody(route("createVcpVariable"), item);
    parseBy(positionSchema, variable);
    return variable;
  },
  async write(work, { item, before, changed }) {
    if (before === undefined) return idIn(await ask(work, route("createVcpVariable"), { body: item }));
    const { updateVariable } = await variables();
    const { content, position } = changed;
    await updateVariable(work.core, work.context.tenant, {
      id: before.id,
      patch: {
        options: variableOptionsSchema.parse(picked(objectOf(item), optionNames)),
        ...(typeof content === "string" ? { content } : {}),
        ...(typeof position === "number" ? { position } : {}),
      },
    });
    return before.id;
  },
  async remove(work, { id }) {
    await ask(work, route("deleteVcpVariable"), { params: { id } });
  },
  room: ({ context }) => ({ most: mostVariables, there: context.config.variables.length, called: "variables" }),
});

// The Tavern

/** By their names. */
interface TavernRoutes<Name> {
  readonly put: Name;
  readonly delete: Name;
}

const tavernItemSchema = z.strictObject({ name: tavernNameSchema, content: z.unknown() });

function tavernKind<Name extends string>(route: RouteOf<Name>, of: TavernKind, routes: TavernRoutes<Name>): Kind {
  return {
    identify: (item) => textIn(item, "name"),
    async read({ core, context }) {
      const entries = context.config.tavern.filter(isOfKind(of));
      const contents = await readTavernItems(core, context.tenant, entries);
      return entries.flatMap(({ id, name }) =>
        contents.has(id) ? [liveAt(name, { name, content: contents.get(id) })] : [],
      );
    },
    parse(_work, item) {
      const { name = null, content } = parseBy(tavernItemSchema, item);
      return { name, content: parseBody(route(routes.put), content) };
    },
    async write(work, { item }) {
      await ask(work, route(routes.put), { params: { name: textIn(item, "name") }, body: objectOf(item)["content"] });
      return undefined;
    },
    async remove(work, { id: name }) {
      await ask(work, route(routes.delete), { params: { name } });
    },
    place: (param) => (param === "name" || param === "content" ? param : `content.${param}`),
    foresee(config, { item, before }) {
      if (before !== undefined) return config;
      const name = textIn(item, "name");
      const entry = { id: `new ${name}`, kind: of, name, hash: "", bytes: 0, createdAt: 0, updatedAt: 0 };
      return { ...config, tavern: [...config.tavern, entry] };
    },
    room: ({ context }) => ({
      most: mostOf.tavernItems,
      there: context.config.tavern.length,
      called: "presets, world books and characters",
    }),
  };
}

export const worldBooks = (route: RouteOf<"putWorldBook" | "deleteWorldBook">): Kind =>
  tavernKind(route, "world_book", { put: "putWorldBook", delete: "deleteWorldBook" });
export const characters = (route: RouteOf<"putCharacter" | "deleteCharacter">): Kind =>
  tavernKind(route, "character", { put: "putCharacter", delete: "deleteCharacter" });
export const presets = (route: RouteOf<"putPreset" | "deletePreset">): Kind =>
  tavernKind(route, "preset", { put: "putPreset", delete: "deletePreset" });

// Agents

export const agents = (route: RouteOf<"createAgent" | "updateAgent" | "deleteAgent">): Kind => ({
  identify: (item) => textIn(item, "name"),
  async read(work) {
    const all = work.context.config.agents;
    if (all.length === 0) return [];
    const nameOf = await baseNames(work);
    return all.map(({ id, createdAt: _created, updatedAt: _updated, ...agent }): Live => {
      return liveAt(id, { ...agent, knowledge: agent.knowledge.map(nameOf) });
    });
  },
  parse: (_work, item) => parseBody(route("createAgent"), item),
  async write(work: Work, { item, before, changed }) {
    if (before === undefined) return idIn(await ask(work, route("createAgent"), { body: item }));
    await ask(work, route("updateAgent"), { params: { id: before.id }, body: changed });
    return before.id;
  },
  async remove(work, { id }) {
    await unlessUsed(work, (force) =>
      ask(work, route("deleteAgent"), { params: { id }, query: { force: String(force) } }),
    );
  },
  foresee(config, { before }, { effect }) {
    const known = config.agents.find(({ id }) => id === before?.id);
    const made = effect?.given.at(-1);
    if (typeof made !== "object" || made === null) return config;
    const planned = { id: "new", createdAt: 0, updatedAt: 0, ...known, ...made } as (typeof config.agents)[number];
    return { ...config, agents: [...config.agents.filter((each) => each !== known), planned] };
  },
  without: (config, { id }) => ({ ...config, agents: config.agents.filter((each) => each.id !== id) }),
  room: ({ context }) => ({ most: mostOf.agents, there: context.config.agents.length, called: "agents" }),
});
