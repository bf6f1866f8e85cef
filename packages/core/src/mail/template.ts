/**
 * Templates of mails (MAIL-4): Liquid, which reads variables and computes nothing else. No template reaches
 * a file or another template, variables are never templates themselves, and HTML gets them escaped.
 */
import type { Template } from "liquidjs";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import { lazily } from "../once.ts";
import { withDelivery } from "../errors/delivery.ts";

/** Characters that a part may come to. */
const longestResult = 2_097_152;

export interface MailTemplate {
  readonly subject?: string | undefined;
  readonly text?: string | undefined;
  readonly html?: string | undefined;
}

export interface RenderedMail {
  readonly subject?: string;
  readonly text?: string;
  readonly html?: string;
}

const parts = ["subject", "text", "html"] as const;
type Part = (typeof parts)[number];

/** Loaded by the first template. */
const openEngines = lazily(async () => (await import("./liquid.ts")).createEngines());

type Parsed = Readonly<Partial<Record<Part, Template[]>>>;

/** Parsed once for each configuration. */
const known = new WeakMap<MailTemplate, Parsed>();

/** @throws TemplateFault naming the part */
export async function parseTemplate(template: MailTemplate): Promise<Parsed> {
  const before = known.get(template);
  if (before !== undefined) return before;
  const { plain, html } = await openEngines();
  const parsed: Partial<Record<Part, Template[]>> = {};
  for (const part of parts) {
    const source = template[part];
    if (source === undefined) continue;
    try {
      parsed[part] = (part === "html" ? html : plain).parse(source);
    } catch (error) {
      throw new TemplateFault(part, firstLine(error));
    }
  }
  known.set(template, parsed);
  return parsed;
}

export class TemplateFault extends Error {
  override readonly name = "TemplateFault";
  readonly part: Part;

  constructor(part: Part, message: string) {
    super(message);
    this.part = part;
  }
}

/** @throws GatewayError `invalid_arguments` naming the variable that is missing or does not fit; `not_sent` */
export async function renderTemplate(
  name: string,
  template: MailTemplate,
  variables: JsonObject,
): Promise<RenderedMail> {
  const [{ plain, html }, parsed] = await Promise.all([openEngines(), parseTemplate(template)]);
  const rendered: Partial<Record<Part, string>> = {};
  for (const part of parts) {
    const tree = parsed[part];
    if (tree === undefined) continue;
    try {
      const text: unknown = (part === "html" ? html : plain).renderSync(tree, variables);
      rendered[part] = String(text);
    } catch (error) {
      throw notRendered(name, part, error);
    }
    if ((rendered[part]?.length ?? 0) > longestResult)
      throw notRendered(name, part, new Error("the result is too long"));
  }
  return rendered;
}

function notRendered(name: string, part: Part, error: unknown): GatewayError {
  const reason = firstLine(error);
  const [, variable] = /undefined variable: ([\w.[\]"'-]{1,100})/.exec(reason) ?? [];
  const message =
    variable === undefined
      ? `The ${part} of template '${name}' cannot be made of these 'variables': ${reason}.`
      : `Template '${name}' needs the variable '${variable}' in 'variables'.`;
  const param = variable === undefined ? "variables" : `variables.${variable}`;
  return withDelivery(new GatewayError("invalid_arguments", message, { param, cause: error }), "not_sent");
}

function firstLine(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return (text.split("\n")[0] ?? "").slice(0, 300).replace(/\.$/, "");
}
