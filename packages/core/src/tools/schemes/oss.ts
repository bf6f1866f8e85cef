/**
 * `oss://service/save|load|list|delete|presign`: object storage (tool management specification, "对象存储";
 * OSS-1, OSS-2). A service is one bucket, or the part of one below a prefix, with one vendor's profile.
 */
import { isIP } from "node:net";
import * as z from "zod";
import { GatewayError } from "../../errors/gateway-error.ts";
import { addressingOf, addressOf, type BucketAddress } from "../../object-storage/bucket-address.ts";
import { keyProblem } from "../../object-storage/object-key.ts";
import { listObjects } from "../../object-storage/objects.ts";
import { S3Client } from "../../object-storage/s3-client.ts";
import type { AccessKeys } from "../../object-storage/sigv4.ts";
import { bucketTools, type BucketTool } from "../../object-storage/tools.ts";
import { profileOf, vendors, type Vendor } from "../../object-storage/vendors.ts";
import type { Egress } from "../../ports/egress.ts";
import { breakerField } from "../../services/breaker.ts";
import { httpUrlField, policyFields, secretField, type SecretReference } from "../../services/config-fields.ts";
import { openSecret } from "../../services/open-secret.ts";
import {
  defineScheme,
  type OpenService,
  type ProbeReport,
  type SchemeDeps,
  type ServiceTool,
} from "../../services/scheme.ts";
import { openTls, tlsField } from "../../services/tls.ts";
import { serviceToolName } from "../../services/tool-name.ts";
import { withDelivery } from "../../errors/delivery.ts";
import type { InvocationContext } from "../tool-call.ts";

const vendorNames = Object.keys(vendors) as readonly Vendor[];

const ossConfigSchema = z
  .strictObject({
    vendor: z.enum(vendorNames).meta({
      description: `Whose store it is: ${vendorNames.map((name) => `${name} (${vendors[name].title})`).join(", ")}.`,
    }),
    bucket: z
      .string()
      .regex(
        /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/,
        "must be a bucket's name: 3 to 63 lower-case letters, digits, '-' and '.'",
      )
      .meta({ description: "Name of the bucket; of Tencent Cloud with the APPID, as in photos-1250000000." }),
    region: z
      .string()
      .regex(/^[a-z0-9][a-z0-9-]{0,62}$/, "must be a region's name: lower-case letters, digits and '-'")
      .optional()
      .meta({ description: "Region of the bucket, such as eu-west-1, cn-hangzhou, ap-guangzhou or cn-north-4." }),
    endpoint: httpUrlField(
      "Address of the store without the bucket; absent: the vendor's public one of the region. MinIO needs one.",
    ).optional(),
    addressing: z.enum(["virtual", "path", "custom_domain"]).optional().meta({
      description:
        "Where the bucket stands: before the host (virtual), in the path, or nowhere, since 'endpoint' is a domain of the bucket's own. Absent: as the vendor has it.",
    }),
    access_key_id: secretField("Access key id."),
    secret_access_key: secretField("Secret access key."),
    session_token: secretField("Session token, with temporary keys.").optional(),
    prefix: z
      .string()
      .max(512)
      .optional()
      .transform((text) => (text === undefined || text === "" || text.endsWith("/") ? text : `${text}/`))
      .meta({ description: "What all keys lie below, such as team-a/; tools see keys without it." }),
    public_url: httpUrlField("Base of objects' addresses for readers, if they have another one.").optional(),
    presign_endpoint: httpUrlField("Address for links, where 'endpoint' is not reached from outside.").optional(),
    tls: tlsField.optional(),
    breaker: breakerField.optional(),
    ...policyFields({
      timeout: "For one attempt of a call, whatever its size.",
      attempts: "Sends in all; absent: 3. All of the tools can be repeated without harm.",
    }),
  })
  .superRefine((config, check) => {
    for (const [path, message] of problemsOf(config)) check.addIssue({ code: "custom", message, path: [path] });
  });
type OssConfig = z.output<typeof ossConfigSchema>;
type Service = OpenService<OssConfig>;

type Placed = Pick<
  z.input<typeof ossConfigSchema>,
  "vendor" | "bucket" | "region" | "endpoint" | "addressing" | "prefix"
>;

function problemsOf({ vendor, bucket, region, endpoint, addressing, prefix }: Placed): readonly [string, string][] {
  const profile = profileOf(vendor);
  const problems: (readonly [string, string | undefined])[] = [
    ["bucket", profile.bucketProblem?.(bucket)],
    ["region", regionProblem({ vendor, region })],
    ["endpoint", endpointProblem({ vendor, endpoint, addressing, bucket })],
    [
      "addressing",
      addressing === "path" && profile.refusesPath
        ? `may not be 'path': ${profile.title} refuses buckets in paths; use 'virtual', or 'custom_domain' with a domain of the bucket's own`
        : undefined,
    ],
    ["prefix", prefix === undefined || prefix === "" ? undefined : keyProblem(prefix)],
  ];
  return problems.flatMap(([path, problem]) => (problem === undefined ? [] : [[path, problem]]));
}

function regionProblem({ vendor, region }: Pick<Placed, "vendor" | "region">): string | undefined {
  const { defaultRegion, regionProblem: problem, title } = profileOf(vendor);
  if (region !== undefined) return problem?.(region);
  return defaultRegion === undefined ? `is required for ${title}: requests are signed for a region` : undefined;
}

function endpointProblem({
  vendor,
  endpoint,
  addressing,
  bucket,
}: Omit<Placed, "region" | "prefix">): string | undefined {
  const { endpointOf, title } = profileOf(vendor);
  if (endpoint === undefined) {
    if (addressing === "custom_domain") return "is required with 'addressing' custom_domain: it is the bucket's domain";
    return endpointOf === undefined ? `is required for ${title}` : undefined;
  }
  const url = URL.parse(endpoint);
  if (url === null) return undefined;
  if (url.search !== "") return "must not have a query";
  if (
    addressingOf({ vendor, bucket, addressing }, url) === "virtual" &&
    isIP(url.hostname.replaceAll(/[[\]]/g, "")) !== 0
  )
    return "must not be an IP address where the bucket stands before the host: name the host, or set 'addressing' to path or custom_domain";
  return addressing !== "custom_domain" && url.hostname.startsWith(`${bucket}.`)
    ? "must not begin with the bucket, which is put before it; leave the bucket out, or set 'addressing' to custom_domain"
    : undefined;
}

const usualAttempts = 3;

export const ossScheme = defineScheme({
  scheme: "oss",
  title: "Object storage",
  description: "A bucket of AWS S3, MinIO, Alibaba Cloud OSS, Tencent Cloud COS or Huawei Cloud OBS.",
  icon: "archive",
  config: ossConfigSchema,
  options: {},
  create: (deps) => ({
    check: (service) => checkAddresses(service, deps.egress),
    tools: ({ config }) => bucketTools.map((tool) => describe(tool, config)),
    async invoke(opened, context) {
      const { tool, call } = opened;
      const described = bucketTools.find(({ id }) => id === tool.id);
      if (described === undefined) throw new GatewayError("internal_error", "A tool was described that is not there.");
      const { settings } = context.config;
      const timeoutMs = call.uri.options.timeoutMs ?? tool.timeoutMs ?? settings.tool_timeout_ms;
      const client = await openClient(deps, opened, context, {
        toolName: call.tool.name,
        timeoutMs,
        makesLink: tool.id === "presign",
      });
      const { config } = opened;
      return described.run(call.arguments, {
        deps,
        call,
        context,
        client,
        profile: profileOf(config.vendor),
        rules: { prefix: config.prefix ?? "", keyBytes: profileOf(config.vendor).keyBytes },
        address: addressesOf(config).objects,
        linkAddress: addressesOf(config).links,
        publicUrl: config.public_url?.replace(/\/+$/, ""),
      });
    },
    breaker: ({ config }) => config.breaker,
    probe: (service, context) => probe(deps, service, context),
    // Without an endpoint it is the vendor's, which the region is a part of.
    reachedBy: ({ config }) => [config.endpoint === undefined ? "region" : "endpoint"],
  }),
});

function describe({ run: _run, ...tool }: BucketTool, config: OssConfig): ServiceTool {
  return {
    ...tool,
    // PUT and DELETE come to the same however often they are sent.
    repeat: "natural",
    timeoutMs: config.timeout_ms,
    maxAttempts: config.max_attempts ?? usualAttempts,
  };
}

interface Addresses {
  readonly objects: BucketAddress;
  /** For links. */
  readonly links: BucketAddress;
}

const known = new WeakMap<OssConfig, Addresses>();

function addressesOf(config: OssConfig): Addresses {
  let addresses = known.get(config);
  if (addresses === undefined) {
    const place = placeOf(config);
    const links = addressOf({ ...place, endpoint: config.presign_endpoint ?? place.endpoint });
    known.set(config, (addresses = { objects: addressOf(place), links }));
  }
  return addresses;
}

function placeOf(config: OssConfig): Parameters<typeof addressOf>[0] & { readonly region: string } {
  const { vendor, bucket, endpoint, addressing } = config;
  return { vendor, bucket, region: config.region ?? profileOf(vendor).defaultRegion ?? "", endpoint, addressing };
}

/** @throws GatewayError `egress_denied` naming the field */
function checkAddresses({ config }: Service, egress: Egress): void {
  try {
    egress.checkUrl(addressOf(placeOf(config)).origin);
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    throw new GatewayError(error.code, error.message, { ...error.details, param: "config.endpoint" });
  }
}

interface Sending {
  readonly toolName: string;
  readonly timeoutMs: number;
  /** What comes of it holds the session token. */
  readonly makesLink?: boolean;
}

async function openClient(
  { egress, credentials, clock }: Pick<SchemeDeps, "egress" | "credentials" | "clock">,
  { config }: Service,
  context: InvocationContext,
  { toolName, timeoutMs, makesLink = false }: Sending,
): Promise<S3Client> {
  const keys = await openKeys(config, credentials, context);
  // A link without the token in it would be of no use.
  if (!makesLink && keys.sessionToken !== undefined) context.redactor.add(keys.sessionToken);
  const tls = await openTls(config.tls, credentials, context);
  return new S3Client({
    egress,
    address: addressesOf(config).objects,
    region: placeOf(config).region,
    keys,
    sending: {
      timeoutMs,
      signal: context.signal,
      ...(context.onSent === undefined ? {} : { onSent: context.onSent }),
      span: context.span,
      ...(tls === undefined ? {} : { tls }),
    },
    toolName,
    redact: (text) => context.redactor.redact(text),
    now: () => clock.now(),
  });
}

/** The secret goes to the redactor; the id is none, and part of every link. */
async function openKeys(
  config: OssConfig,
  credentials: SchemeDeps["credentials"],
  context: InvocationContext,
): Promise<AccessKeys> {
  const open = (reference: SecretReference): Promise<string> => openKey(reference, credentials, context);
  const [accessKeyId, secretAccessKey, sessionToken] = await Promise.all([
    open(config.access_key_id),
    open(config.secret_access_key),
    config.session_token === undefined ? undefined : open(config.session_token),
  ]);
  context.redactor.add(secretAccessKey);
  return { accessKeyId, secretAccessKey, sessionToken };
}

/** Keys are pasted, and what is pasted ends in a line break at times. */
async function openKey(
  reference: SecretReference,
  credentials: SchemeDeps["credentials"],
  context: InvocationContext,
): Promise<string> {
  const value = (await openSecret(reference, credentials, context)).trim();
  if (/^[\u0021-\u007e]+$/.test(value)) return value;
  const { credential: name } = reference;
  throw withDelivery(
    new GatewayError(
      "credential_invalid",
      `Credential '${name}' cannot be an access key: it holds spaces or characters that are not ASCII. Set it again with PUT /v1/credentials/${encodeURIComponent(name)}.`,
      { param: name },
    ),
    "not_sent",
  );
}

/** What the store says where the keys themselves are wrong, rather than what they may do; and which it means. */
const keyRefusals: ReadonlyMap<unknown, string> = new Map([
  ["InvalidAccessKeyId", "config.access_key_id"],
  ["XAdminUserNotFound", "config.access_key_id"],
  ["SignatureDoesNotMatch", "config.secret_access_key"],
  ["InvalidToken", "config.session_token"],
  ["ExpiredToken", "config.session_token"],
]);

async function probe(deps: SchemeDeps, service: Service, context: InvocationContext): Promise<ProbeReport> {
  const { record, config } = service;
  const toolName = serviceToolName(record.scheme, record.serviceId, "list");
  const client = await openClient(deps, service, context, {
    toolName,
    timeoutMs: context.config.settings.tool_timeout_ms,
  });
  const { listing, title } = profileOf(config.vendor);
  const prefix = config.prefix ?? "";
  try {
    const { objects } = await listObjects(client, { prefix, maxKeys: 1 }, listing);
    const below = prefix === "" ? "in the bucket" : `below '${prefix}'`;
    const found = objects.length === 0 ? `no objects ${below} yet` : `objects ${below}`;
    return { detail: `${title} answered; there are ${found}.` };
  } catch (error) {
    const param = error instanceof GatewayError ? keyRefusals.get(error.details.extra?.["reason"]) : undefined;
    if (!(error instanceof GatewayError) || param === undefined) throw error;
    throw new GatewayError("credential_invalid", error.message, { ...error.details, param, cause: error });
  }
}
