/** What asking a registry takes, whichever it is; and how its answers and refusals are read. */
import type { CredentialResolver } from "../../blind/credential-resolver.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, parseJson, type JsonValue } from "../../json.ts";
import type { Egress, EgressResponse } from "../../ports/egress.ts";
import type { SecretReference } from "../../services/config-fields.ts";
import { openHeaderSecret, openSecret } from "../../services/open-secret.ts";
import { openTls, type tlsField } from "../../services/tls.ts";
import { withDelivery } from "../../errors/delivery.ts";
import type { InvocationContext } from "../../tools/tool-call.ts";
import type * as z from "zod";
import type { Instance } from "../instance.ts";
import { readWithin } from "../../read-body.ts";

/** Milliseconds that a registry has to answer. */
const answerMs = 5_000;
/** Bytes of one answer. */
const largestAnswer = 16_000_000;

export interface RegistryDeps {
  readonly egress: Egress;
  readonly credentials: CredentialResolver;
}

/** A registry that keeps what it has learnt of the server from one question to the next. */
export interface Registry {
  /** All that may be called now. @throws GatewayError, not sent */
  instances(context: InvocationContext): Promise<readonly Instance[]>;
}

export interface RegistryAnswer {
  readonly status: number;
  readonly headers: EgressResponse["headers"];
  /** Undefined where it is no JSON. */
  readonly json: JsonValue | undefined;
  /** The body as it came; registries word some refusals as plain text. */
  readonly text: string;
}

export interface Question {
  readonly url: string;
  readonly headers?: readonly (readonly [name: string, value: string])[];
  /** Sent with POST, as a form. */
  readonly form?: string;
  readonly tls: z.output<typeof tlsField> | undefined;
}

/** Asks one kind of registry, which goes by a name in messages. */
export class RegistryClient {
  readonly #deps: RegistryDeps;
  readonly #name: string;

  constructor(deps: RegistryDeps, name: string) {
    this.#deps = deps;
    this.#name = name;
  }

  async ask({ url, headers = [], form, tls }: Question, context: InvocationContext): Promise<RegistryAnswer> {
    const trust = await openTls(tls, this.#deps.credentials, context);
    const asking = this.#deps.egress.request({
      method: form === undefined ? "GET" : "POST",
      url,
      headers: [
        ["accept", "application/json"],
        ...(form === undefined ? [] : [["content-type", "application/x-www-form-urlencoded"] as const]),
        ...headers,
      ],
      ...(form === undefined ? {} : { body: form }),
      timeoutMs: answerMs,
      // Errors put it into quotes of their own.
      peer: this.#name.replaceAll("'", ""),
      ...(trust === undefined ? {} : { tls: trust }),
    });
    const response = await asking.catch((thrown: unknown) => {
      throw withField(thrown);
    });
    const text = await this.#read(response);
    return { status: response.status, headers: response.headers, json: parseJson(text), text };
  }

  async secret(reference: SecretReference, context: InvocationContext): Promise<string> {
    const value = await openSecret(reference, this.#deps.credentials, context);
    context.redactor.add(value);
    return value;
  }

  /** A secret that goes into a header. */
  async headerSecret(reference: SecretReference, context: InvocationContext): Promise<string> {
    const value = await openHeaderSecret(reference, this.#deps.credentials, context);
    context.redactor.add(value);
    return value;
  }

  /** @returns for `throw`: the registry said no, or something that cannot be read */
  refusal(answer: RegistryAnswer): GatewayError {
    const { status } = answer;
    return status === 401 || status === 403
      ? this.refused(status, saidIn(answer))
      : this.failure(`answered with status ${status}${after(saidIn(answer))}`);
  }

  /** @returns for `throw`: who is asking may not, whatever the status that says so */
  refused(status: number, said: string): GatewayError {
    return new GatewayError(
      "credential_invalid",
      `${this.#name} refused who is asking (${status})${after(said)}; check the credentials in 'config.discovery'.`,
      { param: "config.discovery" },
    );
  }

  failure(problem: string): GatewayError {
    return new GatewayError("tool_unreachable", `${this.#name} ${problem}; see 'config.discovery'.`, {
      param: "config.discovery",
    });
  }

  async #read({ body }: EgressResponse): Promise<string> {
    const tooLarge = (): GatewayError => this.failure(`answered with more than ${largestAnswer} bytes`);
    return (await readWithin(body, largestAnswer, tooLarge)).toString("utf8");
  }
}

/** The transport knows no configuration. */
function withField(thrown: unknown): unknown {
  const isAddress =
    thrown instanceof GatewayError && (thrown.code === "tool_unreachable" || thrown.code === "egress_denied");
  if (!isAddress || thrown.details.param !== undefined) return thrown;
  const { code, message, details } = thrown;
  return new GatewayError(code, `${message.replace(/\.$/, "")}; see 'config.discovery'.`, {
    ...details,
    param: "config.discovery",
  });
}

/** What a registry says beside its status: in a field of JSON, or as plain text; a page is for people elsewhere. */
export function saidIn({ json, text }: Pick<RegistryAnswer, "json" | "text">): string {
  const said = isJsonObject(json) ? json["message"] : text.trimStart().startsWith("<") ? "" : text;
  return typeof said === "string" ? said.replaceAll(/\s+/g, " ").trim().replace(/\.$/, "").slice(0, 300) : "";
}

export function after(said: string): string {
  return said === "" ? "" : `: ${said}`;
}

/** A failed question has reached no instance. */
export function asNotSent(error: unknown): unknown {
  return error instanceof Error ? withDelivery(error, "not_sent") : error;
}

export function queryOf(parameters: Readonly<Record<string, string | undefined>>): string {
  return Object.entries(parameters)
    .flatMap(([key, value]) => (value === undefined ? [] : [`${encodeURIComponent(key)}=${encodeURIComponent(value)}`]))
    .join("&");
}

export function withoutSlash(url: string): string {
  return url.replace(/\/+$/, "");
}
