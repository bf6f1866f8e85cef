/**
 * The five tools of an object store (tool management specification, "对象存储"; OSS-1). Text comes and goes
 * in arguments and results; bytes by handle: a file of the session's workspace, or the result of an earlier
 * call. What is large is streamed, never held.
 */
import * as z from "zod";
import { toAttachment } from "../attachment.ts";
import { readBase64 } from "../base64.ts";
import { isHeaderValue } from "../blind/header-rules.ts";
import { decodeReply, leave } from "../blind/reply.ts";
import { openHandle } from "../calls/open-handle.ts";
import type { AdapterDeps } from "../deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import { withDelivery } from "../errors/delivery.ts";
import type { InvocationContext, ToolCall, ToolReply } from "../tools/tool-call.ts";
import { answered, invalidInput, jsonReply, readInput, sessionOf, toParameters } from "../tools/native/native-tool.ts";
import type { Effect } from "../tools/effect.ts";
import type { Tool } from "../tools/tool.ts";
import { createWorkspace } from "../workspace/workspace.ts";
import { pathOf, type BucketAddress } from "./bucket-address.ts";
import { relativeKey, wholeKey, wholePrefix, type KeyRules } from "./object-key.ts";
import {
  deleteObject,
  deleteObjects,
  getObject,
  listObjects,
  type ByteRange,
  type ListPosition,
  type ObjectInfo,
  type ObjectRef,
} from "./objects.ts";
import type { S3Client } from "./s3-client.ts";
import { encodePath, type Pair } from "./sigv4.ts";
import { uploadObject, usualPartBytes, type UploadOptions, type UploadSource } from "./upload.ts";
import type { VendorProfile } from "./vendors.ts";

/** One call, with the bucket opened for it. */
export interface BucketRun {
  readonly deps: Pick<AdapterDeps, "blobs" | "clock" | "log" | "repos">;
  readonly call: ToolCall;
  readonly context: InvocationContext;
  readonly client: S3Client;
  readonly profile: VendorProfile;
  readonly rules: KeyRules;
  readonly address: BucketAddress;
  /** Where links lead, if elsewhere. */
  readonly linkAddress: BucketAddress;
  /** Base of objects' public addresses, if the bucket has another one; no trailing slash. */
  readonly publicUrl: string | undefined;
}

/** What a service has beside its name and configuration, whatever its bucket. */
export interface BucketTool {
  readonly id: string;
  readonly title: string;
  readonly description: string;
  readonly parameters: JsonObject;
  readonly effect: Effect;
  readonly effectOf?: (args: JsonObject) => Effect;
  readonly outputTrust: Tool["outputTrust"];
  readonly run: (args: JsonObject, run: BucketRun) => Promise<ToolReply>;
}

interface BucketToolSpec<Input extends z.ZodType<object>> extends Omit<BucketTool, "parameters" | "run" | "effectOf"> {
  readonly input: Input;
  readonly effectOf?: (input: z.output<Input>) => Effect;
  readonly run: (input: z.output<Input>, run: BucketRun) => Promise<ToolReply>;
}

function defineBucketTool<Input extends z.ZodType<object>>(spec: BucketToolSpec<Input>): BucketTool {
  const { input, effectOf, run, ...described } = spec;
  let parameters: JsonObject | undefined;
  return {
    ...described,
    // Made when first asked for, which most functions never do.
    get parameters() {
      parameters ??= toParameters(input);
      return parameters;
    },
    ...(effectOf === undefined
      ? {}
      : {
          effectOf: (args) => {
            const parsed = input.safeParse(args);
            return parsed.success ? effectOf(parsed.data) : described.effect;
          },
        }),
    run: async (args, bucket) => run(readInput(input, args), bucket),
  };
}

const keyField = z
  .string()
  .min(1)
  .max(1_024)
  .describe("Key of the object, such as files/doc.pdf; no slash at its beginning.");

const mediaTypeField = z
  .string()
  .max(255)
  .regex(/^[\w.+-]+\/[\w.+-]+(?:\s*;.*)?$/);

/** Seven days: what signatures of version 4 allow. */
const longestLink = 604_800;

const save = defineBucketTool({
  id: "save",
  title: "Save object",
  description:
    "Stores an object in the bucket and answers with its address and metadata. Its content is text ('content'), a file of the session ('fromFile') or the result of an earlier call ('fromResult').",
  effect: "write",
  outputTrust: "own",
  input: z.strictObject({
    key: keyField,
    content: z.string().optional().describe("The content itself: text, or bytes in base64 with 'encoding'."),
    encoding: z.enum(["utf-8", "base64"]).default("utf-8").describe("How 'content' is written."),
    fromFile: z.string().min(1).optional().describe("Path of a file in the session's workspace, instead."),
    fromResult: z.string().min(1).max(64).optional().describe("Call id whose whole result is stored, instead."),
    contentType: mediaTypeField.optional().describe("Media type, such as application/pdf; absent: the source's."),
    ifAbsent: z.boolean().default(false).describe("Store only where no object has this key yet."),
  }),
  async run(input, run) {
    const ref = refOf(input.key, run);
    const { contentType: given = "" } = input;
    if (!isHeaderValue(given)) throw invalidInput("contentType", "'contentType' may hold ASCII characters only.");
    requireOneSource(input);
    const open = async (): Promise<UploadSource> => {
      const source = await openSource(input, run);
      return given === "" ? source : { ...source, contentType: given };
    };
    const options: UploadOptions = { profile: run.profile, partBytes: usualPartBytes };
    const ifAbsent = input.ifAbsent ? { mark: run.call.id } : undefined;
    const saved = await uploadObject(run.client, { ...ref, open, ifAbsent }, options);
    const { size, contentType, etag, versionId } = saved;
    return jsonReply(present({ key: ref.named, url: urlOf(ref.key, run), size, contentType, etag, versionId }));
  },
});

interface SourceInput {
  readonly content?: string | undefined;
  readonly encoding: "utf-8" | "base64";
  readonly fromFile?: string | undefined;
  readonly fromResult?: string | undefined;
}

function requireOneSource({ content, fromFile, fromResult }: SourceInput): void {
  const given = [content, fromFile, fromResult].filter((value) => value !== undefined);
  if (given.length === 1) return;
  throw invalidInput("content", "Give one of 'content', 'fromFile' and 'fromResult' as what is to be stored.");
}

async function openSource(
  { content, encoding, fromFile, fromResult }: SourceInput,
  run: BucketRun,
): Promise<UploadSource> {
  if (fromFile !== undefined) {
    const place = { tenant: run.context.tenant, session: sessionOf(run), path: fromFile };
    const { file, body } = await unsent(createWorkspace(run.deps).read(place));
    return { body, contentType: asciiType(file.mediaType) };
  }
  if (fromResult !== undefined) {
    const { mediaType, body } = await unsent(openHandle(run.deps, run.context, fromResult));
    return { body, contentType: asciiType(mediaType) };
  }
  if (encoding === "base64") return { body: bytesOf(content ?? ""), contentType: "application/octet-stream" };
  return { body: Buffer.from(content ?? "", "utf8"), contentType: "text/plain; charset=utf-8" };
}

/** What fails before the store is spoken to. */
async function unsent<T>(work: Promise<T>): Promise<T> {
  return work.catch((error: unknown) => {
    throw error instanceof Error ? withDelivery(error, "not_sent") : error;
  });
}

/** Types that came from outside may hold what no header may. */
function asciiType(mediaType: string): string {
  return mediaType !== "" && isHeaderValue(mediaType) ? mediaType : "application/octet-stream";
}

function bytesOf(text: string): Uint8Array {
  const bytes = readBase64(text);
  if (bytes !== undefined) return bytes;
  throw invalidInput("content", "'content' is not base64, as 'encoding' says, or lacks a part of it.");
}

const load = defineBucketTool({
  id: "load",
  title: "Load object",
  description:
    "Reads an object of the bucket with its metadata: text as text, other content as a handle. 'toFile' puts it into the session's workspace instead, whatever its size.",
  effect: "read",
  effectOf: ({ toFile }) => (toFile === undefined ? "read" : "write"),
  outputTrust: "outside",
  input: z.strictObject({
    key: keyField,
    offset: z.int().min(0).optional().describe("First byte to read."),
    length: z.int().min(1).optional().describe("How many bytes to read."),
    toFile: z.string().min(1).optional().describe("Path in the session's workspace to put the content at."),
  }),
  async run({ key, offset, length, toFile }, run) {
    const ref = refOf(key, run);
    const session = toFile === undefined ? undefined : sessionOf(run);
    const { info, response } = await getObject(run.client, ref, rangeOf({ offset, length }, run));
    const about = { key: ref.named, ...describeInfo(info), ...(offset === undefined ? {} : { offset }) };
    if (toFile !== undefined && session !== undefined) {
      const { tenant, config, signal } = run.context;
      const mediaType = info.contentType ?? "application/octet-stream";
      const options = { mediaType, limit: config.settings.workspace_bytes, signal };
      const place = { tenant, session, path: toFile };
      const written = await answered(createWorkspace(run.deps).write(place, response.body, options)).catch(
        async (error: unknown) => {
          await leave(response.body);
          throw error;
        },
      );
      return jsonReply({ ...about, file: written.path, bytes: written.bytes, replaced: written.replaced });
    }
    const reply = await decodeReply(response, {
      maxBytes: run.context.config.settings.result_max_bytes,
      toolName: run.call.tool.name,
      redact: (text) => run.context.redactor.redact(text),
    }).catch((error: unknown) => {
      throw withWayOut(error, ref, info);
    });
    return typeof reply.body === "string"
      ? jsonReply({ ...about, content: reply.body })
      : { mediaType: reply.mediaType, body: reply.body, details: about };
  },
});

/** Undefined: the whole object. */
function rangeOf(
  { offset = 0, length }: { readonly offset?: number | undefined; readonly length?: number | undefined },
  { profile }: BucketRun,
): ByteRange | undefined {
  if (offset === 0 && length === undefined) return undefined;
  return { offset, length, headers: profile.rangeHeaders };
}

function withWayOut(error: unknown, { named }: ObjectRef, { size }: ObjectInfo): unknown {
  if (!(error instanceof GatewayError) || error.code !== "tool_output_too_large") return error;
  const bytes = size === undefined ? "" : `, which has ${size} bytes,`;
  return withDelivery(
    new GatewayError(
      error.code,
      `The object '${named.slice(0, 200)}'${bytes} is too large for a result (setting 'result_max_bytes'). Read a part with 'offset' and 'length', or put it into the workspace with 'toFile'.`,
      error.details,
    ),
    "answered",
  );
}

function describeInfo({ size, contentType, etag, lastModified, versionId, metadata }: ObjectInfo): JsonObject {
  const own = Object.keys(metadata).length === 0 ? undefined : { ...metadata };
  return present({ size, contentType, etag, lastModified, versionId, metadata: own });
}

/** JSON without what is not known. */
function present(fields: Readonly<Record<string, JsonObject[string] | undefined>>): JsonObject {
  return Object.fromEntries(
    Object.entries(fields).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
  );
}

const list = defineBucketTool({
  id: "list",
  title: "List objects",
  description:
    "Lists objects of the bucket by the beginning of their keys, page by page: key, size and time of the last change.",
  effect: "read",
  outputTrust: "outside",
  input: z.strictObject({
    prefix: z.string().max(1_024).default("").describe("What keys begin with, such as files/; absent: all."),
    maxKeys: z.int().min(1).max(1_000).default(100).describe("Keys on a page."),
    delimiter: z
      .string()
      .min(1)
      .max(8)
      .optional()
      .describe("With '/', keys below the next slash are listed once, in 'prefixes', as directories are."),
    continuationToken: z.string().max(8_192).optional().describe("From the page before."),
  }),
  async run({ prefix, maxKeys, delimiter, continuationToken }, run) {
    const from = continuationToken === undefined ? undefined : readToken(continuationToken);
    const asked = { prefix: wholePrefix(prefix, run.rules), maxKeys, delimiter, from };
    const page = await listObjects(run.client, asked, run.profile.listing);
    const objects = page.objects.flatMap(({ key: whole, size, lastModified, etag }) => {
      const key = relativeKey(whole, run.rules);
      // What consoles make of the prefix, for it to look like a directory, is no object of anybody.
      return key === undefined || key === "" ? [] : [present({ key, size, lastModified, etag })];
    });
    const prefixes = page.prefixes.flatMap((whole) => relativeKey(whole, run.rules) ?? []);
    return jsonReply({
      objects,
      ...(delimiter === undefined ? {} : { prefixes }),
      truncated: page.next !== undefined,
      ...(page.next === undefined ? {} : { continuationToken: writeToken(page.next) }),
    });
  },
});

const positionSchema = z.union([
  z.strictObject({ token: z.string().min(1).max(4_096) }),
  z.strictObject({ after: z.string().min(1).max(4_096) }),
]);

function writeToken(position: ListPosition): string {
  return Buffer.from(JSON.stringify(position), "utf8").toString("base64url");
}

/** Whatever it says, only keys with the asked prefix are listed. */
function readToken(text: string): ListPosition {
  try {
    return positionSchema.parse(JSON.parse(Buffer.from(text, "base64url").toString("utf8")));
  } catch (cause) {
    throw invalidInput("continuationToken", "'continuationToken' is none that an earlier page gave.", cause);
  }
}

const remove = defineBucketTool({
  id: "delete",
  title: "Delete objects",
  description: "Deletes an object of the bucket, or several with 'keys'. That there is none is no error.",
  effect: "write",
  outputTrust: "own",
  input: z.strictObject({
    key: keyField.optional(),
    keys: z.array(keyField).min(1).max(1_000).optional().describe("Several keys, instead of 'key'."),
  }),
  async run({ key, keys }, run) {
    if ((key === undefined) === (keys === undefined)) throw invalidInput("key", "Give either 'key' or 'keys'.");
    if (keys === undefined) {
      const ref = refOf(key ?? "", run);
      await deleteObject(run.client, ref);
      return jsonReply({ key: ref.named, deleted: true });
    }
    return removeAll([...new Set(keys)], run);
  },
});

async function removeAll(keys: readonly string[], run: BucketRun): Promise<ToolReply> {
  const refs = keys.map((named, at): ObjectRef => ({ key: wholeKey(named, run.rules, `keys[${at}]`), named }));
  const failures = await deleteObjects(run.client, refs);
  const left = new Set(failures.map(({ key }) => key));
  const errors = failures.map(({ key, reason, message }) => ({ key, reason, message: message.slice(0, 300) }));
  if (left.size > 0 && keys.every((key) => left.has(key))) {
    const [first] = failures;
    throw withDelivery(
      new GatewayError("tool_failed", `None of the objects was deleted: the store says ${first?.reason ?? "no"}.`, {
        toolName: run.call.tool.name,
        extra: { errors },
      }),
      "answered",
    );
  }
  return jsonReply({ deleted: keys.filter((key) => !left.has(key)), ...(errors.length === 0 ? {} : { errors }) });
}

const presign = defineBucketTool({
  id: "presign",
  title: "Presign URL",
  description:
    "Makes a URL with which anyone can read an object (GET) or store one (PUT) without a key until it expires.",
  effect: "write",
  effectOf: ({ method }) => (method === "GET" ? "read" : "write"),
  outputTrust: "own",
  input: z.strictObject({
    key: keyField,
    expires: z.int().min(1).max(longestLink).default(3_600).describe("Seconds for which it works; seven days at most."),
    method: z.enum(["GET", "PUT"]).default("GET").describe("What it is for."),
    contentType: mediaTypeField.optional().describe("For PUT: the media type that has to be sent with it."),
    fileName: z.string().min(1).max(255).optional().describe("For GET: browsers save the object under this name."),
  }),
  run: async ({ key, expires, method, contentType, fileName }, run) => {
    if (method === "GET" && contentType !== undefined)
      throw invalidInput("contentType", "'contentType' goes with method PUT.");
    if (method === "PUT" && fileName !== undefined) throw invalidInput("fileName", "'fileName' goes with method GET.");
    if (contentType !== undefined && !isHeaderValue(contentType))
      throw invalidInput("contentType", "'contentType' may hold ASCII characters only.");
    const ref = refOf(key, run);
    const headers: readonly Pair[] = contentType === undefined ? [] : [["content-type", contentType]];
    const query: readonly Pair[] =
      fileName === undefined ? [] : [["response-content-disposition", toAttachment(fileName)]];
    const url = run.client.presign({ method, ...ref, headers, query }, expires, run.linkAddress);
    const expiresAt = new Date(run.deps.clock.now() + expires * 1_000).toISOString();
    return jsonReply({ key: ref.named, method, url, expiresAt, headers: Object.fromEntries(headers) });
  },
});

function refOf(named: string, { rules }: BucketRun): ObjectRef {
  return { key: wholeKey(named, rules), named };
}

/** Without a signature: whether anyone may read it there is the bucket's affair. */
function urlOf(key: string, { publicUrl, address }: BucketRun): string {
  return publicUrl === undefined ? `${address.origin}${pathOf(address, key)}` : `${publicUrl}/${encodePath(key)}`;
}

export const bucketTools: readonly BucketTool[] = [save, load, list, remove, presign];
