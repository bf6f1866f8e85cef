/** Where tools and models come from: providers, descriptor sets, tool services, plugins. */
import { definitionOf, registerPlugin } from "@toolyard/core/blind/register";
import type { PluginRecord } from "@toolyard/core/blind/plugin";
import { toPlain } from "@toolyard/core/configuration/compare";
import type { Change, Kind, Work } from "@toolyard/core/configuration/kind";
import { unlessUsed } from "@toolyard/core/configuration/unless-used";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { isJsonObject, type JsonObject, type JsonValue } from "@toolyard/core/json";
import { mostOf } from "@toolyard/core/ports/limits";
import type { NewPlugin } from "@toolyard/core/ports/plugins";
import { credentialsIn, liftSecrets, storeIt } from "@toolyard/core/services/config-fields";
import { toInvalidConfig } from "@toolyard/core/services/invalid-config";
import { discoverIfPossible } from "@toolyard/core/services/list-tools";
import {
  createService,
  deleteService,
  notSecretsIn,
  runtimeOf,
  updateService,
  type ServicePatch,
} from "@toolyard/core/services/register";
import type { ToolService } from "@toolyard/core/services/service";
import { formatToolUri } from "@toolyard/core/tools/uri";
import type { TenantConfig } from "@toolyard/core/tenant-config";
import * as z from "zod";
import { toFields } from "../routes/providers.ts";
import {
  ask,
  credentialsNamedIn,
  idIn,
  joinedName,
  liveAt,
  objectOf,
  parseBody,
  parseBy,
  textIn,
  type RouteOf,
} from "./part.ts";

export const providers = (route: RouteOf<"createProvider" | "updateProvider" | "deleteProvider">): Kind => ({
  identify: (item) => textIn(item, "name"),
  read: ({ context }) => Promise.resolve(context.config.providers.map((each) => liveAt(each.id, toFields(each)))),
  parse: (_work, item) => parseBody(route("createProvider"), item),
  async write(work, { item, before, changed }) {
    if (before === undefined) return idIn(await ask(work, route("createProvider"), { body: item }));
    await ask(work, route("updateProvider"), { params: { id: before.id }, body: changed });
    return before.id;
  },
  async remove(work, { id }) {
    await ask(work, route("deleteProvider"), { params: { id } });
  },
  credentials: (item) => credentialsNamedIn(item),
  room: ({ context }) => ({ most: mostOf.providers, there: context.config.providers.length, called: "providers" }),
});

// Descriptor sets

const descriptorSetSchema = z.strictObject({ id: z.string(), content: z.base64() });

/** What reads descriptors is large, and few tenants have any. */
// oxlint-disable-next-line typescript/explicit-function-return-type
const sets = () => import("@toolyard/core/grpc/descriptor-sets");

export const descriptorSets = (): Kind => ({
  identify: (item) => textIn(item, "id"),
  async read({ core, context }) {
    const { descriptorSetBytes } = await sets();
    const all = await descriptorSetBytes(core, context.tenant);
    return all.map(({ id, bytes }) => liveAt(id, { id, content: Buffer.from(bytes).toString("base64") }));
  },
  async parse(_work, item) {
    const parsed = parseBy(descriptorSetSchema, item);
    const { descriptorSetId } = await sets();
    const id = descriptorSetId(Buffer.from(textIn(parsed, "content"), "base64"));
    if (parsed["id"] === id) return parsed;
    throw new GatewayError("invalid_request", `'id' must be '${id}', which this content comes to.`, { param: "id" });
  },
  async write({ core, context }, { item }) {
    const { storeDescriptorSet } = await sets();
    await storeDescriptorSet(core, context.tenant, Buffer.from(textIn(item, "content"), "base64"));
    return textIn(item, "id");
  },
  async remove({ core, context }, { id }) {
    const { deleteDescriptorSet } = await sets();
    await deleteDescriptorSet(core, context.config, id);
  },
  async room({ core, context }) {
    const { descriptorSetBytes, mostDescriptorSets } = await sets();
    const there = (await descriptorSetBytes(core, context.tenant)).length;
    return { most: mostDescriptorSets, there, called: "descriptor sets" };
  },
});

// Tool services

/** What `createService` calls a credential that it makes of a literal. */
const literalsName = /^(svc_[0-9a-z]{26})\.(.+)\.[0-9a-z]{6}$/;

/** Own credentials of a service bear its id; documents call them by its address and their place. */
function documentNames({ id, scheme, serviceId, config }: ToolService): ReadonlyMap<string, string> {
  return new Map(
    credentialsIn(config).flatMap((name) => {
      const [, owner, place] = literalsName.exec(name) ?? [];
      return owner === id && place !== undefined ? [[name, `${scheme}.${serviceId}.${place}`.slice(0, 128)]] : [];
    }),
  );
}

function withNames(value: JsonValue, names: ReadonlyMap<string, string>): JsonValue {
  if (Array.isArray(value)) return value.map((each) => withNames(each, names));
  if (!isJsonObject(value)) return value;
  const { credential } = value;
  if (typeof credential === "string" && Object.keys(value).length === 1) {
    return { credential: names.get(credential) ?? credential };
  }
  return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, withNames(part, names)]));
}

const inverse = (names: ReadonlyMap<string, string>): ReadonlyMap<string, string> =>
  new Map([...names].map(([name, called]) => [called, name]));

function itemOf(service: ToolService): JsonObject {
  const { scheme, serviceId, displayName, description, enabled, config } = service;
  const plain = objectOf(toPlain(config));
  return {
    scheme,
    service_id: serviceId,
    display_name: displayName,
    description,
    enabled,
    config: withNames(plain, documentNames(service)),
    not_secret: [...notSecretsIn(plain)],
  };
}

function recordOf(item: JsonValue): Omit<ToolService, "id" | "scheme"> {
  const { display_name, description, enabled, config } = objectOf(item);
  return {
    serviceId: textIn(item, "service_id"),
    displayName: typeof display_name === "string" ? display_name : null,
    description: typeof description === "string" ? description : null,
    enabled: enabled === true,
    config: objectOf(config),
    version: 1,
    discovered: null,
    createdAt: 0,
    updatedAt: 0,
  };
}

const notSecretOf = (item: JsonValue): readonly string[] => z.array(z.string()).parse(objectOf(item)["not_secret"]);

export const toolServices = (route: RouteOf<"createToolService">): Kind => ({
  identify: (item) => joinedName([textIn(item, "scheme"), textIn(item, "service_id")], "://"),
  read: ({ context }) => Promise.resolve(context.config.services.map((each) => liveAt(each.id, itemOf(each)))),
  parse({ core }, item) {
    const parsed = parseBody(route("createToolService"), item);
    const { scheme } = runtimeOf(core.adapters, textIn(parsed, "scheme"));
    const config = scheme.config.safeParse(parsed["config"]);
    if (!config.success) throw toInvalidConfig(config.error);
    const { config: plain, secrets } = liftSecrets(config.data, () => "");
    const [secret] = secrets;
    if (secret !== undefined) {
      const field = `config.${secret.path}`;
      throw new GatewayError("invalid_definition", `'${field}' is a secret, which no document holds; ${storeIt}.`, {
        param: field,
      });
    }
    const whole = objectOf(toPlain(plain));
    const named = z.array(z.string()).default([]).parse(parsed["not_secret"]);
    const needed = notSecretsIn(whole);
    const unnamed = needed.find((field) => !named.includes(field));
    if (unnamed === undefined) return { ...parsed, config: whole, not_secret: [...needed] };
    const message = `'${unnamed}' is called as secrets are; where it is none, name it in 'not_secret'.`;
    throw new GatewayError("invalid_definition", message, { param: unnamed });
  },
  async write(work, { item, before, changed }) {
    const { core, context } = work;
    const descriptors = objectOf(objectOf(objectOf(item)["config"])["grpc"])["descriptor_set"];
    // One that this document brings is not there to be looked at before it is applied.
    const isBrought = typeof descriptors === "string" && comesWithIt(work, descriptors);
    if (isBrought) return undefined;
    const { config, ...record } = recordOf(item);
    const notSecret = notSecretOf(item);
    if (before === undefined) {
      const { serviceId, displayName, description, enabled } = record;
      const request = {
        scheme: textIn(item, "scheme"),
        serviceId,
        displayName,
        description,
        enabled,
        config,
        notSecret,
      };
      const service = await createService(core, context, request);
      await discoverIfPossible(core, context, service);
      return service.id;
    }
    const known = context.config.services.find(({ id }) => id === before.id);
    const own = known === undefined ? new Map<string, string>() : inverse(documentNames(known));
    const patch: ServicePatch = {
      ...("display_name" in changed ? { displayName: record.displayName } : {}),
      ...("description" in changed ? { description: record.description } : {}),
      ...("enabled" in changed ? { enabled: record.enabled } : {}),
      ...("config" in changed ? { config: objectOf(withNames(config, own)), replacesConfig: true, notSecret } : {}),
    };
    const service = await updateService(core, context, { id: before.id, patch });
    if ("config" in changed || service.discovered === null) await discoverIfPossible(core, context, service);
    return service.id;
  },
  remove: (work, { id }) => unlessUsed(work, (force) => deleteService(work.core, work.context, { id, force })),
  credentials: (item) => credentialsNamedIn(objectOf(item)["config"] ?? null),
  holds: ({ services }) => services.flatMap((service) => [...documentNames(service).values()]),
  foresee: (config, change) => withService(config, change),
  without: (config, { id }) => ({ ...config, services: config.services.filter((each) => each.id !== id) }),
  room: ({ context }) => ({ most: mostOf.services, there: context.config.services.length, called: "tool services" }),
});

function comesWithIt({ idOf }: Work, descriptors: string): boolean {
  try {
    return idOf("descriptor_sets", descriptors) === undefined;
  } catch {
    // There is none, as the service's own check says in its words.
    return false;
  }
}

function withService(config: TenantConfig, { item, before }: Change): TenantConfig {
  const known = config.services.find(({ id }) => id === before?.id);
  // Only in a rehearsal, where the item has been checked: the scheme is one.
  const scheme = textIn(item, "scheme") as ToolService["scheme"];
  const { config: named, ...rest } = recordOf(item);
  const own = known === undefined ? new Map<string, string>() : inverse(documentNames(known));
  const record = { ...rest, config: objectOf(withNames(named, own)) };
  const made: ToolService = { ...record, id: before?.id ?? `new ${formatToolUri(scheme, record.serviceId)}`, scheme };
  const { discovered } = known ?? made;
  return { ...config, services: [...config.services.filter((each) => each !== known), { ...made, discovered }] };
}

// Plugins

const pluginSchema = z.strictObject({
  enabled: z.boolean().default(true),
  definition: z.custom<JsonObject>(isJsonObject, "Invalid input: expected object"),
});

const pluginId = (record: Pick<PluginRecord, "pluginId">): string => `plg_${record.pluginId}`;

function recordOfPlugin(plugin: NewPlugin, known: PluginRecord | undefined): PluginRecord {
  return { ...plugin, pluginId: known?.pluginId ?? 0, createdAt: 0, updatedAt: 0 };
}

export const plugins = (route: RouteOf<"createPlugin" | "replacePlugin" | "updatePlugin" | "deletePlugin">): Kind => ({
  identify: (item) => textIn(objectOf(item)["definition"] ?? null, "name"),
  read: ({ context }) =>
    Promise.resolve(
      context.config.plugins
        .filter(({ type }) => type === "HTTP")
        .map((each) => liveAt(pluginId(each), { enabled: each.enabled, definition: definitionOf(each) })),
    ),
  parse({ core }, item) {
    const { enabled = true, definition = null } = parseBy(pluginSchema, item);
    const plugin = registerPlugin(definition, { egress: core.egress });
    return { enabled, definition: toPlain(definitionOf(recordOfPlugin(plugin, undefined))) };
  },
  async write(work, { item, before, changed }) {
    const { enabled, definition } = objectOf(item);
    const id = before?.id ?? idIn(await ask(work, route("createPlugin"), { body: definition }));
    if (before !== undefined && "definition" in changed) {
      await ask(work, route("replacePlugin"), { params: { id }, body: definition });
    }
    if (enabled !== (before === undefined ? true : objectOf(before.item)["enabled"])) {
      await ask(work, route("updatePlugin"), { params: { id }, body: { enabled } });
    }
    return id;
  },
  async remove(work, { id }) {
    await ask(work, route("deletePlugin"), { params: { id } });
  },
  place: (param) => (param === "enabled" || param === "definition" ? param : `definition.${param}`),
  credentials: (item) => {
    const definition = objectOf(objectOf(item)["definition"]);
    const required = z.array(z.string()).default([]).parse(definition["required_credentials"]);
    return [...required, ...credentialsNamedIn(definition["auth_config"] ?? null)];
  },
  foresee(config, { item, before }) {
    const known = config.plugins.find((each) => pluginId(each) === before?.id);
    const { definition, enabled } = objectOf(item);
    const plugin = registerPlugin(definition, {
      egress: { checkUrl: () => undefined },
      enabled: enabled === true,
    });
    return { ...config, plugins: [...config.plugins.filter((each) => each !== known), recordOfPlugin(plugin, known)] };
  },
  without: (config, { id }) => ({ ...config, plugins: config.plugins.filter((each) => pluginId(each) !== id) }),
  room: ({ context }) => ({ most: mostOf.plugins, there: context.config.plugins.length, called: "plugins" }),
});

const decisionsSchema = z.strictObject({
  name: z.string().min(1).max(256),
  enabled: z.boolean().default(true),
  sensitive: z.boolean().default(false),
  roles: z.array(z.string()).default([]),
});

export const vcpPlugins = (route: RouteOf<"updatePlugin" | "deletePlugin">): Kind => ({
  identify: (item) => textIn(item, "name"),
  read: ({ context }) =>
    Promise.resolve(
      context.config.plugins
        .filter(({ type }) => type === "VCP")
        .map((each) => {
          const { name, enabled, sensitive, roles } = each;
          return liveAt(pluginId(each), { name, enabled, sensitive, roles: roles.toSorted() });
        }),
    ),
  parse: (_work, item) => {
    const { roles = [], ...rest } = parseBy(decisionsSchema, item);
    return { ...rest, roles: z.array(z.string()).parse(roles).sort() };
  },
  async write(work, { item, before, changed }) {
    if (before === undefined) {
      const message = `There is no VCP plugin '${textIn(item, "name")}'; import its folder first, with POST /v1/plugins/import.`;
      throw new GatewayError("not_found", message, { param: "name" });
    }
    await ask(work, route("updatePlugin"), { params: { id: before.id }, body: changed });
    return before.id;
  },
  async remove(work, { id }) {
    await ask(work, route("deletePlugin"), { params: { id } });
  },
});
