/**
 * A tenant's settings: what is stored is what it asked for, what holds is that within the operator's caps of
 * today (CHAT-12). A change is a merge in which null takes a setting back to its default.
 */
import * as z from "zod";
import { GatewayError } from "../errors/gateway-error.ts";
import { once } from "../once.ts";
import { toolPatternSchema } from "../callers/caller.ts";

export function isTimeZone(name: string): boolean {
  try {
    return new Intl.DateTimeFormat("en", { timeZone: name }).resolvedOptions().timeZone !== "";
  } catch {
    return false;
  }
}

/** Limits and policies a tenant may set; what holds of them is within the operator's caps. Milliseconds and bytes. */
export const tenantSettingsSchema = z.strictObject({
  default_model: z.string().min(1).optional(),
  requests_per_minute: z.int().min(1).max(1_000_000).default(6_000),
  concurrent_requests: z.int().min(1).max(10_000).default(200),
  concurrent_tool_calls: z.int().min(1).max(1_000).default(16),
  tool_timeout_ms: z.int().min(1).max(840_000).default(60_000),
  max_attempts: z.int().min(1).max(10).default(5),
  rounds: z.int().min(1).max(100).default(10),
  calls_per_round: z.int().min(1).max(128).default(32),
  /** Tools that a model is told of; where a caller has more, the model searches them. */
  tools_offered_max: z.int().min(1).max(1_000).default(64),
  /** The same for the tokens of their schemas, estimated. */
  tool_tokens_max: z.int().min(100).max(1_000_000).default(16_000),
  /** Identical calls (tool and arguments) in one request before the run is ended. */
  identical_calls: z.int().min(1).max(100).default(3),
  wall_clock_ms: z.int().min(1_000).max(840_000).default(300_000),
  /** Tokens a single chat may use over all rounds. */
  tokens_per_request: z.int().min(1).default(2_000_000),
  /** Tokens of an answer that a chat without `max_tokens` reserves where a budget applies. */
  reserve_tokens: z.int().min(1).max(1_000_000).default(4_096),
  /** Bytes of a tool result given to the model; the whole stays behind a handle. */
  result_bytes: z.int().min(256).max(1_048_576).default(32_768),
  /** Bytes that a tool result may have at all. */
  result_max_bytes: z.int().min(1_024).max(104_857_600).default(10_485_760),
  session_idle_ms: z.int().min(1_000).max(2_592_000_000).default(86_400_000),
  workspace_bytes: z.int().min(1_024).max(10_737_418_240).default(104_857_600),
  /** Knowledge bases, and what is in all of them together. */
  knowledge_bases: z.int().min(1).max(10_000).default(100),
  knowledge_documents: z.int().min(1).max(1_000_000).default(10_000),
  knowledge_bytes: z.int().min(1_024).max(107_374_182_400).default(1_073_741_824),
  knowledge_chunks: z.int().min(1).max(10_000_000).default(200_000),
  /** Of one base whose vectors are compared one by one, which takes time in proportion. */
  knowledge_vector_chunks: z.int().min(1).max(1_000_000).default(50_000),
  /** One document, and the text that is read from it at most. */
  knowledge_document_bytes: z.int().min(1_024).max(268_435_456).default(33_554_432),
  knowledge_document_characters: z.int().min(1_000).max(50_000_000).default(5_000_000),
  /** Models see the pictures of results. */
  show_result_pictures: z.boolean().default(true),
  approval_wait_s: z.int().min(0).max(60).default(0),
  /** Outward writes need approval in a turn that has read outside content. */
  untrusted_write_approval: z.boolean().default(true),
  /** Directories of VCP nodes whose files tools may be given by `file://`; for nodes that keep no list themselves. */
  vcp_node_directories: z.array(z.string().min(1).max(1_024)).max(32).default([]),
  native_tools: z
    .array(z.string())
    .default(["read_file", "write_file", "list_files", "delete_file", "fetch", "read_result"]),
  /** Tools that `deep_search` searches by, by name or URI; which argument takes the query is found out, or said. */
  deep_search_sources: z
    .array(
      z.union([
        z.string().min(1).max(512),
        z.strictObject({
          tool: z.string().min(1).max(512),
          query: z.string().min(1).max(128).optional(),
          arguments: z.record(z.string(), z.json()).optional(),
        }),
      ]),
    )
    .max(16)
    .default([]),
  /** The model that `deep_search` thinks with; absent: that of requests which name none. */
  deep_search_model: z.string().min(1).max(256).optional(),
  /** How models ask for tools where a request does not say: by function calls, or in their text. */
  tool_protocol: z.enum(["openai", "vcp"]).default("openai"),
  /** Rounds of tools of a chat in VCP's protocol, streamed and not; the reply after the last is the answer. */
  max_vcp_loop_stream: z.int().min(1).max(100).default(5),
  max_vcp_loop_non_stream: z.int().min(1).max(100).default(5),
  /** Clients read the results of a chat in VCP's protocol; on `/v1/chatvcp` they always do. */
  show_vcp: z.boolean().default(false),
  /** Are the requests of a model a part of the answer? */
  vcp_requests: z.enum(["shown", "withheld"]).default("shown"),
  /** What the answer says of calls is marked as the user's, for clients that divide messages by roles. */
  vcp_role_divider: z.boolean().default(false),
  /** Every call of a chat in VCP's protocol brings the tenant's AuthCode as `tool_password`. */
  vcp_tool_password: z.boolean().default(false),
  /** Marks that a model has written almost right count. */
  vcp_fuzzy_matching: z.boolean().default(false),
  /** Subsets of the tools, by name, each at an address of its own: `/mcp/{name}`. */
  mcp_toolsets: z
    .record(
      z.string().regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, "a name has 1 to 64 characters a-z, 0-9, _ and -"),
      z.strictObject({
        tools: z.array(toolPatternSchema).min(1).max(256),
        /** For the models of clients that connect there. */
        instructions: z.string().min(1).max(4_000).optional(),
      }),
    )
    .default({}),
  /** Issuers of tokens that clients of `/mcp` are sent to; told to whoever names the tenant. */
  mcp_authorization_servers: z
    .array(z.url({ protocol: /^https?$/ }))
    .max(10)
    .default([]),
  /** Chats whose messages are prepared: those that speak VCP, or all. */
  message_pipeline: z.enum(["vcp", "all"]).default("vcp"),
  /** Knowledge bases, by name or id, whose passages every chat is given. */
  chat_knowledge_bases: z.array(z.string().min(1).max(128)).max(16).default([]),
  /** Puts pictures, sounds and films into words where a prompt says `{{TransBase64}}`, and what it is asked. */
  media_translation_model: z.string().min(1).max(256).optional(),
  media_translation_prompt: z.string().min(1).max(10_000).default("Say what this shows, as exactly as you can."),
  /** Models that make pictures, and those that make vectors: neither preprocessing nor tools touch their requests. */
  whitelist_image_models: z.array(z.string().min(1).max(256)).max(200).default([]),
  whitelist_embedding_models: z.array(z.string().min(1).max(256)).max(200).default([]),
  /** Preprocessors by name; others follow in order of their names. */
  preprocessor_order: z.array(z.string().min(1).max(100)).max(500).default([]),
  /** Bytes of a picture, a sound or a film that is prepared for a model; four times as much in one conversation. */
  media_bytes: z.int().min(1_024).max(52_428_800).default(20_971_520),
  /** Of `{{Date}}` and whatever else tells the time to models. */
  time_zone: z
    .string()
    .refine(isTimeZone, "must be the name of a time zone, for example 'Asia/Shanghai' or 'UTC'")
    .default("Asia/Shanghai"),
  /** Characters that the placeholders of one request may come to, with all they are made of. */
  placeholder_chars_max: z.int().min(1_000).max(50_000_000).default(5_000_000),
  /** Flows within flows. */
  flow_depth_max: z.int().min(1).max(32).default(8),
  /** Days that calls are rows; then they are written to archives. */
  calls_retention_days: z.int().min(1).max(3_650).default(30),
  /** Days that archives are kept, from the day of their calls; 0: calls are deleted without one. */
  calls_archive_days: z.int().min(0).max(36_500).default(365),
});

export type TenantSettings = z.infer<typeof tenantSettingsSchema>;

export type SettingName = keyof TenantSettings;

/** The operator's upper bounds for numeric settings; a setting without one is bounded by its schema. */
export type SettingsCaps = { readonly [Name in SettingName]?: number };

/** Caps as an operator writes them: names of numeric settings, each with the largest value allowed. */
export const settingsCapsSchema = once((): z.ZodType<SettingsCaps> => {
  const numbers = Object.entries(tenantSettingsSchema.shape).flatMap(([name, field]) => {
    const number = withoutDefault(field);
    if (!(number instanceof z.ZodNumber)) return [];
    // Below the least that the setting can be, nothing would be left to hold.
    const cap = z.int().min(number.minValue ?? 1);
    return [[name, cap.optional()] as const];
  });
  return z.strictObject(Object.fromEntries(numbers));
});

/** Values to set; null: back to the default. */
export type SettingsChange = { readonly [Name in SettingName]?: TenantSettings[Name] | null | undefined };

type ChangeShape = { [Name in SettingName]: z.ZodOptional<z.ZodNullable<z.ZodType<TenantSettings[Name]>>> };

/** The settings' own checks without their defaults, so that what is not named stays as it is. */
export const settingsChangeSchema = once(() =>
  z.strictObject(
    Object.fromEntries(
      Object.entries(tenantSettingsSchema.shape).map(([name, field]) => [
        name,
        withoutDefault(field).nullable().optional(),
      ]),
    ) as ChangeShape,
  ),
);

function withoutDefault(field: z.ZodType): z.ZodType {
  return field instanceof z.ZodDefault || field instanceof z.ZodOptional
    ? withoutDefault(field.unwrap() as z.ZodType)
    : field;
}

/** All settings as they hold, defaults included: what is above a cap counts as the cap. */
export function settingsInForce(stored: unknown, caps: SettingsCaps = {}): TenantSettings {
  const settings = tenantSettingsSchema.parse(stored);
  const above = Object.entries(caps).filter(([name, cap]) => {
    const value = settings[name as SettingName];
    return typeof value === "number" && value > cap;
  });
  return { ...settings, ...Object.fromEntries(above) };
}

/**
 * @returns the settings that the tenant has set, to be stored
 * @throws GatewayError `invalid_request` naming a setting above the operator's cap
 */
export function changeSettings(
  stored: Partial<TenantSettings>,
  change: SettingsChange,
  caps: SettingsCaps = {},
): Partial<TenantSettings> {
  const merged: Record<string, unknown> = { ...stored };
  for (const [name, value] of Object.entries(change)) {
    if (value === undefined) continue;
    if (value === null) delete merged[name];
    else merged[name] = withinCap(name as SettingName, value, caps);
  }
  const checked = tenantSettingsSchema.parse(merged);
  return Object.fromEntries(
    Object.keys(merged).map((name) => [name, checked[name as SettingName]]),
  ) as Partial<TenantSettings>;
}

function withinCap(name: SettingName, value: unknown, caps: SettingsCaps): unknown {
  const cap = caps[name];
  if (cap !== undefined && typeof value === "number" && value > cap) {
    throw new GatewayError(
      "invalid_request",
      `Setting '${name}' may be ${cap} at most, the operator's cap; got ${value}.`,
      {
        param: name,
        extra: { cap },
      },
    );
  }
  return value;
}
