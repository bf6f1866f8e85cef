/**
 * Presets, world books and characters of the Tavern (VCP specification 4.5; VCP-9): each is put under its name,
 * which is what `{{VCPTavern::name}}` and presets say. All of it is the tenant's configuration.
 */
import { readAll } from "@toolyard/core/ports/blob-store";
import type { TavernEntry, TavernKind } from "@toolyard/core/ports/tavern";
import { parseJson } from "@toolyard/core/json";
import { tavernNameSchema } from "@toolyard/core/vcp/tavern/preset";
import {
  findTavernEntry,
  isOfKind,
  putTavernItem,
  readTavernItems,
  tavernSchemas,
  type TavernContents,
} from "@toolyard/core/vcp/tavern/store";
import * as z from "zod";
import { headerOf } from "../app-env.ts";
import { defineRoute, type IsolationDriver, type RouteModule } from "../define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { found, idOf, notFound, timeSchema } from "./shared.ts";

const tags = ["vcp"];
const largestBody = 8_388_608;

interface KindWords {
  readonly kind: TavernKind;
  /** In paths. */
  readonly path: string;
  readonly one: string;
  readonly sample: unknown;
}

const nameParams = z.strictObject({ name: z.string() });
const importQuery = z.strictObject({
  name: tavernNameSchema.meta({ description: "Under which it is stored; one of this name is replaced." }),
});
const importedSchema = z.strictObject({
  notes: z.array(z.string()).meta({ description: "What was changed or left out." }),
});

const entrySchema = z.strictObject({
  object: z.string(),
  id: z.string(),
  name: z.string(),
  bytes: z.int(),
  hash: z.string().meta({ description: "SHA-256 of the content." }),
  created_at: timeSchema,
  updated_at: timeSchema,
});

function viewEntry({ kind, id, name, bytes, hash, createdAt, updatedAt }: TavernEntry): z.output<typeof entrySchema> {
  return {
    object: `vcp.${kind}`,
    id,
    name,
    bytes,
    hash,
    created_at: new Date(createdAt).toISOString(),
    updated_at: new Date(updatedAt).toISOString(),
  };
}

interface TavernRoutes {
  readonly put: RouteModule;
  readonly list: RouteModule;
  readonly get: RouteModule;
  readonly delete: RouteModule;
}

/** The same four routes for each kind. */
function routesFor<Kind extends TavernKind>({
  kind,
  path,
  one,
  sample,
}: KindWords & { readonly kind: Kind }): TavernRoutes {
  const base = `/v1/vcp/${path}`;
  const schema: z.ZodType<TavernContents[Kind]> = tavernSchemas[kind];
  const arrange = async (owner: IsolationDriver): Promise<string> => {
    await owner.send("put", `${base}/of-the-owner`, sample);
    return "of-the-owner";
  };
  const arrangeObject = async (owner: IsolationDriver) => ({ params: { name: await arrange(owner) } });
  const withContent = z.strictObject({ ...entrySchema.shape, content: schema });
  return {
    put: defineRoute({
      method: "put",
      path: `${base}/{name}`,
      summary: `Put a ${one}`,
      description: "One of this name is replaced. Every instance uses it from its next request on.",
      tags,
      scope: "manage",
      request: { params: z.strictObject({ name: tavernNameSchema }), body: schema, maxBytes: largestBody },
      responses: { 200: { description: `The ${one}`, schema: entrySchema } },
      isolation: { kind: "nothing-owned", reason: "The name is each tenant's own, like that of a credential." },
      async handler(c, { core, tenant, params, body }) {
        const item = { kind, name: params.name, content: body };
        return c.json(viewEntry(await putTavernItem(core, tenant, item)));
      },
    }),
    list: defineRoute({
      method: "get",
      path: base,
      summary: `List ${one}s`,
      tags,
      scope: "manage",
      list: true,
      request: { query: pageQuery },
      responses: { 200: { description: "A page of them, without their contents", schema: listSchema(entrySchema) } },
      isolation: { kind: "list", arrange },
      handler(c, { config, query }) {
        const { limit, order, after } = toPageRequest(query);
        const all = config.tavern.filter(isOfKind(kind));
        if (order === "desc") all.reverse();
        const left = after === undefined ? all : all.filter(({ id }) => (order === "asc" ? id > after : id < after));
        return c.json(toList({ data: left.slice(0, limit), hasMore: left.length > limit }, viewEntry, idOf));
      },
    }),
    get: defineRoute({
      method: "get",
      path: `${base}/{name}`,
      summary: `One ${one} with its content`,
      tags,
      scope: "manage",
      request: { params: nameParams },
      responses: { 200: { description: `The ${one}`, schema: withContent } },
      isolation: { kind: "object", arrange: arrangeObject },
      async handler(c, { core, tenant, config, params }) {
        const entry = findTavernEntry(config, kind, params.name);
        if (entry === undefined || !isOfKind(kind)(entry)) throw notFound(one, params.name, "name");
        const content = (await readTavernItems(core, tenant, [entry])).get(entry.id);
        return c.json({ ...viewEntry(entry), content: found(content, one, params.name, "name") });
      },
    }),
    delete: defineRoute({
      method: "delete",
      path: `${base}/{name}`,
      summary: `Delete a ${one}`,
      tags,
      scope: "manage",
      request: { params: nameParams },
      responses: { 204: { description: "It is gone" } },
      isolation: { kind: "object", arrange: arrangeObject },
      async handler(c, { core, tenant, params }) {
        if (!(await core.repos.tavern.delete(tenant, kind, params.name))) throw notFound(one, params.name, "name");
        return c.body(null, 204);
      },
    }),
  };
}

const presets = routesFor({
  kind: "preset",
  path: "presets",
  one: "preset",
  sample: { rules: [{ type: "relative", target: "system", position: "after", content: "Be brief." }] },
});
const worldBooks = routesFor({
  kind: "world_book",
  path: "world_books",
  one: "world book",
  sample: { entries: [{ keys: ["harbour"], content: "The harbour freezes in January." }] },
});
const characters = routesFor({
  kind: "character",
  path: "characters",
  one: "character",
  sample: { name: "Ada", description: "A pilot." },
});

export const { put: putPreset, list: listPresets, get: getPreset, delete: deletePreset } = presets;
export const { put: putWorldBook, list: listWorldBooks, get: getWorldBook, delete: deleteWorldBook } = worldBooks;
export const { put: putCharacter, list: listCharacters, get: getCharacter, delete: deleteCharacter } = characters;

const storedSchema = z.strictObject({ ...entrySchema.shape, ...importedSchema.shape });

export const importWorldBook = defineRoute({
  method: "post",
  path: "/v1/vcp/world_books/import",
  summary: "Import a world book",
  description: "The body is the JSON of SillyTavern's world info, or the `character_book` of a character card.",
  tags,
  scope: "manage",
  request: {
    query: importQuery,
    stream: { mediaTypes: ["application/json"], description: "The file as it was exported." },
    maxBytes: largestBody,
  },
  responses: { 200: { description: "The world book, and what was changed", schema: storedSchema } },
  isolation: { kind: "nothing-owned", reason: "Makes a world book of the caller's own tenant." },
  async handler(c, { core, tenant, query, stream }) {
    const { readWorldInfo } = await import("@toolyard/core/vcp/tavern/import-world-info");
    const text = new TextDecoder().decode(await readAll(stream));
    const { book, notes } = readWorldInfo(parseJson(text));
    const entry = await putTavernItem(core, tenant, { kind: "world_book", name: query.name, content: book });
    return c.json({ ...viewEntry(entry), notes });
  },
});

export const importCharacter = defineRoute({
  method: "post",
  path: "/v1/vcp/characters/import",
  summary: "Import a character card",
  description: "The body is a card of version 1, 2 or 3: its JSON, or the PNG picture that carries it.",
  tags,
  scope: "manage",
  request: {
    query: importQuery,
    stream: {
      mediaTypes: ["application/json", "image/png", "application/octet-stream"],
      description: "The card as it was exported.",
    },
    maxBytes: largestBody,
  },
  responses: { 200: { description: "The character, and what was changed", schema: storedSchema } },
  isolation: { kind: "nothing-owned", reason: "Makes a character of the caller's own tenant." },
  async handler(c, { core, tenant, query, stream }) {
    const { readCharacterCard } = await import("@toolyard/core/vcp/tavern/import-character");
    const isPicture = headerOf(c, "content-type")?.startsWith("image/png") === true;
    const { character, notes } = readCharacterCard(await readAll(stream), isPicture);
    const entry = await putTavernItem(core, tenant, { kind: "character", name: query.name, content: character });
    return c.json({ ...viewEntry(entry), notes });
  },
});
