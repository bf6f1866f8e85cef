/** What a call of an SMS tool asks for, read and checked before anything leaves (SMS-1, SMS-2, SVCERR-1). */
import * as z from "zod";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject } from "../json.ts";
import { withDelivery } from "../errors/delivery.ts";
import { readInput, toParameters } from "../tools/native/native-tool.ts";
import { numberOf, vendorOf, type SmsConfig, type SmsProfile } from "./config.ts";
import type { OutgoingSms, TemplateParams } from "./vendor.ts";

const value = z.union([z.string().max(1_000), z.number(), z.boolean()]);

const argumentsSchema = z.strictObject({
  to: z
    .union([z.string().min(1).max(40), z.array(z.string().min(1).max(40)).min(1).max(1_000)])
    .describe(
      "Phone number of the recipient, or a list; with '+' and country code unless it is a number of the usual country.",
    ),
  content: z.string().min(1).max(1_600).optional().describe("The text; not together with 'template'."),
  template: z.string().max(64).optional().describe("Template, instead of 'content'."),
  params: z
    .union([z.record(z.string(), value), z.array(value).max(50)])
    .optional()
    .describe(
      "Values for the template: by name, or a list in the order of its parameters. Digits with leading zeros as text.",
    ),
});
type Arguments = z.output<typeof argumentsSchema>;

let common: JsonObject | undefined;

/** What models are told of a profile's arguments: with the templates that there are. */
export function parametersOf({ templates }: SmsConfig, { template: usual }: SmsProfile): JsonObject {
  common ??= toParameters(argumentsSchema);
  const properties = isJsonObject(common["properties"]) ? common["properties"] : {};
  const names = Object.keys(templates);
  const lines = Object.entries(templates).map(
    ([name, { description, params }]) =>
      `${name}${description === undefined ? "" : `: ${description}`}${params.length === 0 ? "" : `; params: ${params.join(", ")}`}`,
  );
  const described = `Template, instead of 'content'${usual === undefined ? "" : ` (absent: ${usual})`}. ${lines.join(". ")}`;
  const template = {
    type: "string",
    description: described.trim().slice(0, 4_000),
    ...(names.length === 0 ? {} : { enum: names }),
  };
  return { ...common, properties: { ...properties, template } };
}

export type SmsRequest = Pick<OutgoingSms, "content" | "numbers" | "signName">;

/** @throws GatewayError `invalid_arguments` naming the argument, `sms_plain_unsupported`, `permission_denied`; all `not_sent` */
export function readSmsRequest(config: SmsConfig, profile: SmsProfile, args: JsonObject): SmsRequest {
  const asked = readInput(argumentsSchema, args);
  const numbers = readNumbers(config, asked.to);
  requireRecipients(config, profile, numbers);
  const { content, signName } = readContent(config, profile, asked);
  return { numbers, content, signName: signName ?? profile.sign_name ?? config.sign_name };
}

function readNumbers(config: SmsConfig, to: Arguments["to"]): readonly string[] {
  const given = Array.isArray(to) ? to : [to];
  const numbers = given.map((text, index) => {
    const number = numberOf(config, text);
    if (number !== undefined) return number;
    const field = Array.isArray(to) ? `to.${index}` : "to";
    throw invalid(
      field,
      `'${field}' must be a phone number such as +8613800138000; got ${JSON.stringify(text)}. Numbers without '+' and country code are taken for those of 'country_code'.`,
    );
  });
  return [...new Set(numbers)];
}

function requireRecipients(config: SmsConfig, profile: SmsProfile, numbers: readonly string[]): void {
  if (numbers.length > config.max_recipients) {
    throw invalid(
      "to",
      `A call of this service may have ${config.max_recipients} recipients ('max_recipients'); this one has ${numbers.length}.`,
    );
  }
  const allowed = profile.allowed_recipients;
  const stranger =
    allowed === undefined ? undefined : numbers.find((number) => !allowed.some((start) => number.startsWith(start)));
  if (stranger === undefined) return;
  throw withDelivery(
    new GatewayError(
      "permission_denied",
      `This profile may not write to '${stranger}'; an administrator can add the number or its beginning to 'allowed_recipients'.`,
      { param: "to" },
    ),
    "not_sent",
  );
}

interface Content {
  readonly content: OutgoingSms["content"];
  readonly signName: string | undefined;
}

function readContent(config: SmsConfig, profile: SmsProfile, asked: Arguments): Content {
  const { content, template: named, params } = asked;
  if (content !== undefined && named !== undefined)
    throw invalid("template", "'template' and 'content' cannot be given together; choose one.");
  if (content !== undefined) {
    if (params !== undefined) throw invalid("params", "'params' are for a 'template', which is not given.");
    return { content: plainContent(config, content), signName: undefined };
  }
  const name = named ?? profile.template;
  if (name === undefined) throw invalid("content", "The message has no content: give 'content' or 'template'.");
  const known = Object.hasOwn(config.templates, name) ? config.templates[name] : undefined;
  const names = Object.keys(config.templates);
  if (known === undefined && names.length > 0)
    throw invalid("template", `There is no template ${JSON.stringify(name)}; there are ${names.join(", ")}.`);
  return {
    content: {
      template: known?.id ?? name,
      params: readParams(config, { name, order: known?.params ?? [], given: params }),
    },
    signName: known?.sign_name,
  };
}

/** @throws GatewayError `sms_plain_unsupported` */
function plainContent(config: SmsConfig, text: string): OutgoingSms["content"] {
  const { takesText, title } = vendorOf(config);
  if (takesText) return { text };
  const carrier = config.plain_template;
  if (carrier !== undefined)
    return { template: carrier.template, params: { named: { [carrier.param]: text }, listed: [text] } };
  throw withDelivery(
    new GatewayError(
      "sms_plain_unsupported",
      `${title} sends templates only, and the service has no 'plain_template' for texts without one: use 'template', or have an administrator set 'plain_template'.`,
      { param: "content" },
    ),
    "not_sent",
  );
}

interface GivenParams {
  readonly name: string;
  readonly order: readonly string[];
  readonly given: Arguments["params"];
}

/** What is text stays text: a code may begin with zeros. */
function readParams(config: SmsConfig, { name, order, given = {} }: GivenParams): TemplateParams {
  const { namesParams, title } = vendorOf(config);
  if (Array.isArray(given)) return paramsInOrder(given.map(String), { name, order, namesParams, title });
  const named = Object.fromEntries(Object.entries(given).map(([key, each]) => [key, String(each)]));
  const missing = order.find((key) => !Object.hasOwn(named, key));
  if (missing !== undefined) throw invalid(`params.${missing}`, `Template '${name}' needs '${missing}' in 'params'.`);
  const keys = Object.keys(named);
  const unknown = order.length === 0 ? undefined : keys.find((key) => !order.includes(key));
  if (unknown !== undefined)
    throw invalid(`params.${unknown}`, `Template '${name}' has no parameter '${unknown}'; it has ${order.join(", ")}.`);
  if (namesParams) return { named, listed: order.map((key) => named[key] ?? "") };
  return { named, listed: placesOf(keys, { name, order, title }).map((key) => named[key] ?? "") };
}

/** In which order names stand: as configured, or as they themselves say. */
function placesOf(
  keys: readonly string[],
  { name, order, title }: { readonly name: string; readonly order: readonly string[]; readonly title: string },
): readonly string[] {
  if (order.length > 0) return order;
  if (keys.length < 2) return keys;
  const sorted = keys.toSorted((left, right) => Number(left) - Number(right));
  if (sorted.every((key, index) => key === String(index + 1))) return sorted;
  throw invalid(
    "params",
    `${title} knows parameters by their place: give 'params' as a list, or have an administrator say their order in 'templates.${name}.params'.`,
  );
}

function paramsInOrder(
  listed: readonly string[],
  {
    name,
    order,
    namesParams,
    title,
  }: Omit<GivenParams, "given"> & { readonly namesParams: boolean; readonly title: string },
): TemplateParams {
  if (order.length === 0 && namesParams && listed.length > 0) {
    throw invalid("params", `${title} knows parameters by their names: give 'params' as an object.`);
  }
  if (order.length > 0 && listed.length !== order.length)
    throw invalid(
      "params",
      `Template '${name}' has ${order.length} parameters (${order.join(", ")}); got ${listed.length}.`,
    );
  return { named: Object.fromEntries(order.map((key, index) => [key, listed[index] ?? ""])), listed };
}

function invalid(param: string, message: string): GatewayError {
  return withDelivery(new GatewayError("invalid_arguments", message, { param }), "not_sent");
}
