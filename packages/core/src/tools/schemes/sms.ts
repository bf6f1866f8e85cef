/**
 * `sms://service/profile`: text messages (tool management specification, "短信服务"; SMS-1 to SMS-3). A service
 * is an account with one of the vendors; a tool is a profile of it. Requests are signed here and leave through
 * the guarded door; what a vendor calls success is read from its body, never from the HTTP status.
 */
import { randomBytes } from "node:crypto";
import { GatewayError } from "../../errors/gateway-error.ts";
import { parseJson } from "../../json.ts";
import type { EgressResponse } from "../../ports/egress.ts";
import { credentialsIn } from "../../services/config-fields.ts";
import { invalidConfig } from "../../services/invalid-config.ts";
import { openSecret } from "../../services/open-secret.ts";
import { profileTool } from "../../services/profile.ts";
import { defineScheme, type OpenService, type SchemeDeps, type ServiceCall } from "../../services/scheme.ts";
import { smsConfigSchema, vendorOf, type SmsConfig } from "../../sms/config.ts";
import { requireSomeAccepted, sendAll, toRefusal, viewResults, type VendorNames } from "../../sms/deliver.ts";
import { isOfCountry } from "../../sms/phone-number.ts";
import { receiptUrl } from "../../sms/receipt-link.ts";
import { parametersOf, readSmsRequest } from "../../sms/request.ts";
import type { SigningContext, VendorReply, VendorRequest } from "../../sms/vendor.ts";
import { withDelivery } from "../../errors/delivery.ts";
import type { InvocationContext, ToolReply } from "../tool-call.ts";
import { jsonReply } from "../native/native-tool.ts";
import { readWithin } from "../../read-body.ts";

type Service = OpenService<SmsConfig>;

/** What a vendor's answer may have. */
const longestAnswer = 1_048_576;
const probeTimeoutMs = 10_000;

export const smsScheme = defineScheme({
  scheme: "sms",
  title: "Text message",
  description: "Text messages by Aliyun, Tencent Cloud, Huawei Cloud or Twilio.",
  icon: "message",
  config: smsConfigSchema,
  options: {},
  create: (deps) => ({
    check: (service) => check(service, deps),
    tools: ({ config }) =>
      Object.entries(config.profiles).map(([id, profile]) =>
        profileTool(config, id, { profile, parameters: parametersOf(config, profile) }),
      ),
    invoke: (call, context) => send(call, context, deps),
    probe: (service, context) => probe(service, context, deps),
    reachedBy: () => ["account.endpoint"],
  }),
});

function check({ config }: Service, { egress }: SchemeDeps): void {
  try {
    egress.checkUrl(vendorOf(config).endpoint(config.account));
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    throw new GatewayError(error.code, error.message, { ...error.details, param: "config.account.endpoint" });
  }
}

async function send(service: ServiceCall<SmsConfig>, context: InvocationContext, deps: SchemeDeps): Promise<ToolReply> {
  const { config, tool, call } = service;
  const profile = Object.hasOwn(config.profiles, tool.id) ? config.profiles[tool.id] : undefined;
  if (profile === undefined) throw invalidConfig(`profiles.${tool.id}`, "is not there");
  const request = readSmsRequest(config, profile, call.arguments);
  const reveal = await openSecrets(config, context, deps);
  const receiptUrl = await receiptUrlOf(service, context, deps);
  const vendor = vendorOf(config);
  const timeoutMs = call.uri.options.timeoutMs ?? call.tool.timeoutMs ?? context.config.settings.tool_timeout_ms;
  const sent = await sendAll(inBatches(request.numbers, vendor.batch), async (numbers) => {
    const message = { ...request, numbers, callId: call.id, receiptUrl };
    const reply = await ask(vendor.send(config.account, message, signing(deps, reveal)), context, { deps, timeoutMs });
    return vendor.read(reply, numbers);
  });
  requireSomeAccepted(sent, namesOf(config));
  return jsonReply(viewResults(sent));
}

/** Undefined: nobody is to tell us. */
async function receiptUrlOf(
  { record, config }: Service,
  context: InvocationContext,
  deps: SchemeDeps,
): Promise<string | undefined> {
  if (!config.receipts) return undefined;
  const { tenant, config: snapshot } = context;
  return receiptUrl(deps, { tenant, service: record.id }, snapshot.wrappedKey);
}

function namesOf(config: SmsConfig): VendorNames {
  const vendor = vendorOf(config);
  return { vendor: config.vendor, title: vendor.title, credential: vendor.secret(config.account).credential };
}

/** Vendors want numbers of mainland China and others in requests of their own. */
function inBatches(numbers: readonly string[], size: number): readonly (readonly string[])[] {
  const groups = [
    numbers.filter((number) => isOfCountry(number, "86")),
    numbers.filter((number) => !isOfCountry(number, "86")),
  ];
  return groups.flatMap((group) =>
    Array.from({ length: Math.ceil(group.length / size) }, (_, index) => group.slice(index * size, (index + 1) * size)),
  );
}

type Reveal = SigningContext["reveal"];

async function openSecrets(
  config: SmsConfig,
  context: InvocationContext,
  { credentials }: SchemeDeps,
): Promise<Reveal> {
  const values = new Map<string, string>();
  for (const credential of credentialsIn(config.account)) {
    const value = await openSecret({ credential }, credentials, context);
    context.redactor.add(value);
    values.set(credential, value);
  }
  return ({ credential }) => values.get(credential) ?? "";
}

function signing({ clock }: SchemeDeps, reveal: Reveal): SigningContext {
  return { now: new Date(clock.now()), nonce: randomBytes(16).toString("hex"), reveal };
}

async function ask(
  request: VendorRequest,
  context: InvocationContext,
  { deps, timeoutMs }: { readonly deps: SchemeDeps; readonly timeoutMs: number },
): Promise<VendorReply> {
  const response = await deps.egress.request({
    method: request.method,
    url: request.url,
    headers: [["accept", "application/json"], ...request.headers],
    ...(request.body === undefined ? {} : { body: request.body }),
    signal: context.signal,
    timeoutMs,
    ...(context.onSent === undefined ? {} : { onSent: context.onSent }),
    span: context.span,
  });
  const text = (await readWithin(response.body, longestAnswer, endless)).toString("utf8");
  return { status: response.status, json: parseJson(text), retryAfterMs: retryAfterOf(response) };
}

function endless(): GatewayError {
  return withDelivery(new GatewayError("tool_output_too_large", "The vendor's answer has no end."), "uncertain");
}

function retryAfterOf({ headers }: EgressResponse): number | undefined {
  const value = headers["retry-after"];
  return typeof value === "string" && /^\d{1,5}$/.test(value) ? Number(value) * 1_000 : undefined;
}

async function probe(
  service: Service,
  context: InvocationContext,
  deps: SchemeDeps,
): Promise<{ readonly detail: string }> {
  const { config } = service;
  const vendor = vendorOf(config);
  const reveal = await openSecrets(config, context, deps);
  const request = vendor.probe(config.account, signing(deps, reveal));
  const refusal = vendor.readProbe(await ask(request, context, { deps, timeoutMs: probeTimeoutMs }));
  if (refusal !== undefined) throw toRefusal(refusal, [], namesOf(config));
  const url = await receiptUrlOf(service, context, deps);
  const receipts = url === undefined ? "" : ` Its receipts are taken at ${url}`;
  return { detail: `${vendor.title} answers and takes the account.${receipts}` };
}
