/** Which parts of a command are secrets: they become credentials and stand in no definition. */
import { placeOf as placeOfSlot } from "../../blind/auth-mapping.ts";
import type { AuthConfig, AuthMapping } from "../../blind/definition.ts";
import { isJsonObject, parseJson, type JsonValue } from "../../json.ts";
import {
  isSecretName,
  isSecretValue,
  isToken,
  looksLikeSecret,
  mayBeSecret,
  wordsOf,
} from "../../secrets/secret-shape.ts";
import type { CandidateAuth } from "../candidate.ts";
import { ownCredentialName } from "../credentials.ts";
import { eachContainer } from "../walk.ts";
import { hasVariable } from "./words.ts";

/** Does a value hold a secret, however deep, or something below a name of one? */
export function holdsSecret(value: JsonValue): boolean {
  for (const container of eachContainer(value)) {
    const isFound = isJsonObject(container)
      ? Object.entries(container).some(([name, member]) => isSecret(name, member))
      : container.some((item) => typeof item === "string" && isSecretValue("", item));
    if (isFound) return true;
  }
  return false;
}

function isSecret(name: string, member: JsonValue): boolean {
  const isNamed = isSecretName(name);
  if (isJsonObject(member)) return isNamed;
  const values = Array.isArray(member) ? member : [member];
  return values.some((each) =>
    typeof each === "string" ? isSecretText(name, each) : isNamed && mayBeSecret(name, JSON.stringify(each)),
  );
}

/** Is the text of a field a secret, or JSON that holds one? */
export function isSecretText(name: string, text: string): boolean {
  if (mayBeSecret(name, text)) return true;
  const value = /^\s*[{[]/.test(text) ? parseJson(text) : undefined;
  return value !== undefined && holdsSecret(value);
}

/** Does a text of whatever syntax hold a secret, or have a word that names one? */
export function mentionsSecret(text: string): boolean {
  return isSecretValue("", text) || text.match(/[\w-]+/g)?.some(isSecretName) === true;
}

/** Long mixtures of letters and digits in a path, as webhooks have them. */
export function looksSecret(segment: string): boolean {
  const isUuid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(segment);
  return isJumble(segment) && /[A-Za-z0-9_-]{20,}/.test(segment) && !isUuid;
}

function isJumble(text: string): boolean {
  return /[A-Za-z]/.test(text) && /\d/.test(text);
}

type Place = AuthMapping["location"];

/** What a value stands in, for people. */
const placeNames: Readonly<Record<Place, string>> = {
  header: "header",
  query: "query parameter",
  path: "placeholder",
  body: "field",
};

interface SegmentPlace {
  readonly before: string;
  /** Does the host or a segment before it say that it is a webhook's? */
  readonly isOfHook: boolean;
  /** Does the command have a credential elsewhere? Then what the path has are ids. */
  readonly isAuthorized: boolean;
}

/** A segment of a path that opens something to whoever knows it, without a word that stands in front (`bot123:…`). */
export function secretInSegment(segment: string, { before, isOfHook, isAuthorized }: SegmentPlace): string | undefined {
  const token = segment.replace(/^bot(?=\d)/, "");
  if (isToken(token)) return token;
  if (isAuthorized) return undefined;
  if (isOfHook) return isJumble(segment) && /[\w-]{16,}/.test(segment) ? segment : undefined;
  // What follows a plural is more likely the id of one of them.
  const isId = before === "d" || (/^[a-z][\w-]*s$/i.test(before) && before !== "services");
  const isSecret = looksLikeSecret(segment) || (segment.match(/[A-Za-z0-9]{20,}/g)?.some(isMixed) ?? false);
  return isSecret && !isId ? segment : undefined;
}

/** As in the addresses of webhooks: `/hooks/…`, `/v2/hook/…`, `/IncomingWebhook/…`, `hook.eu1.example.com`. */
export function isHook(word: string): boolean {
  return /(?:^|[-_]|web)hooks?(?:b\d|-test)?$/i.test(word);
}

/** As in addresses that are one for all webhooks and robots: `/robot/send?access_token=…`, `/cgi-bin/webhook/send?key=…`. */
export function isRobot(word: string): boolean {
  return /^(?:web-?)?hook$|^robot$/i.test(word);
}

function isMixed(run: string): boolean {
  return /[a-z]/.test(run) && /[A-Z]/.test(run) && /\d/.test(run);
}

/** Does a variable of the path stand for a secret? An id is none. */
export function isSecretVariable(name: string, { isAuthorized }: Pick<SegmentPlace, "isAuthorized">): boolean {
  return !isAuthorized && isSecretName(name) && !wordsOf(name).endsWith("id");
}

/** Called like a secret, and another one for each session, form or device. */
const ofOneCall =
  /sess(?:ion)?-?id$|[cx]srf|captcha|(?:^|-)(?:public|device|registration|push|client|client-request|change)-?token$/;

/** Is a field or parameter the same secret with every call? Beside a credential elsewhere, only what says so itself. */
export function isLastingSecret(name: string, value: string, isAuthorized: boolean): boolean {
  if (ofOneCall.test(wordsOf(name))) return isToken(value);
  return isAuthorized ? isSecretValue(name, value) : mayBeSecret(name, value);
}

/** What documentation writes where a secret is to stand: `<token>`, `${TOKEN}`, `YOUR_API_KEY`, `xxxxxx`. */
const standIn = /^(?:<[^<>]*>|\$?\{[^{}]*\}|\{\{[^{}]*\}\}|\[[^[\]]*\]|\.{3}|…|[x*]{3,}|your[-_ ].*)$/i;

export function isUnknown(value: string): boolean {
  return hasVariable(value) || value === "" || standIn.test(value);
}

interface Found {
  readonly target: string;
  readonly location: Place;
  readonly name: string;
  readonly value: string;
  readonly holds: string;
}

/** As mappings have it, which keep one place for user name and password. */
const longestTarget = 128;
const mostFound = 15;

/** Secrets of one command, and the configuration that puts them back. */
export class CommandSecrets {
  readonly #origin: string;
  readonly #found: Found[] = [];
  #basic: { readonly username: string; readonly password: string } | undefined;

  constructor(origin: string) {
    this.#origin = origin;
  }

  addUser(username: string, password: string): void {
    this.#basic = { username, password };
  }

  /** @returns whether there is room for it */
  addHeader(target: string, value: string): boolean {
    const basic = target.toLowerCase() === "authorization" ? readBasic(value) : undefined;
    if (basic === undefined) return this.add("header", target, value);
    this.#basic = basic;
    return true;
  }

  /**
   * @param part what the credential's name says of it
   * @returns whether there is room for it, under this name
   */
  add(location: Place, target: string, value: string, part = target.toLowerCase()): boolean {
    if (target === "" || target.length > longestTarget || this.#found.length >= mostFound) return false;
    const name = this.#freeName(part, { location, target });
    this.#found.push({ target, location, name, value, holds: `the value of ${placeNames[location]} '${target}'` });
    return true;
  }

  #freeName(part: string, place: Pick<Found, "location" | "target">): string {
    const others = this.#found.filter((other) => placeOf(other) !== placeOf(place));
    const taken = new Set(others.map(({ name }) => name));
    for (let number = 0; ; number += 1) {
      const written = number === 0 ? part : `${place.location}.${part}${number === 1 ? "" : `.${number}`}`;
      const name = this.#named(written);
      if (!taken.has(name)) return name;
    }
  }

  get isEmpty(): boolean {
    return this.#found.length === 0 && this.#basic === undefined;
  }

  get config(): AuthConfig | undefined {
    const slots = this.#slots();
    const [only, second] = slots;
    if (this.#basic !== undefined && only === undefined) {
      return {
        type: "basic",
        mapping: [
          { source: this.#named("username"), target: "username", location: "header" },
          ...(this.#basic.password === ""
            ? []
            : [{ source: this.#named("password"), target: "password", location: "header" as const }]),
        ],
      };
    }
    const all = [...slots, ...this.#basicSlot()];
    if (only === undefined) return undefined;
    if (second === undefined && all.length === 1 && isBearer(only)) {
      return { type: "bearer", mapping: [{ source: only.name, location: "header" }] };
    }
    return { type: "api_key", mapping: all.map(({ name, target, location }) => ({ source: name, target, location })) };
  }

  /** Names and what each holds. */
  get auth(): CandidateAuth {
    const credentials = [...this.values()].map(([name, { holds }]) => ({ name, scheme: null, holds }));
    return { schemes: [], alternatives: [], credentials };
  }

  /** By the name of the credential; a value is absent where the command had a variable or the like in its place. */
  values(): ReadonlyMap<string, { readonly value: string | undefined; readonly holds: string }> {
    const values = new Map<string, { readonly value: string | undefined; readonly holds: string }>();
    const put = (name: string, value: string, holds: string): void =>
      void values.set(name, { value: isUnknown(value) ? undefined : value, holds });
    const slots = this.#slots();
    if (this.#basic !== undefined && slots.length === 0) {
      put(this.#named("username"), this.#basic.username, "the user name");
      if (this.#basic.password !== "") put(this.#named("password"), this.#basic.password, "the password");
    }
    const isAlone = slots.length === 1 && this.#basicSlot().length === 0;
    for (const found of [...slots, ...this.#basicSlot()]) {
      if (isAlone && isBearer(found)) put(found.name, found.value.replace(/^bearer +/i, ""), "the access token");
      else put(found.name, found.value, found.holds);
    }
    return values;
  }

  /** Each place once: of a header given twice the last one counts. */
  #slots(): readonly Found[] {
    const byPlace = new Map(this.#found.map((found) => [placeOf(found), found]));
    return [...byPlace.values()];
  }

  /** Beside other secrets, user name and password are one more header. */
  #basicSlot(): readonly Found[] {
    if (this.#basic === undefined || this.#found.length === 0) return [];
    const place = { target: "Authorization", location: "header" } as const;
    // A header that is written out is sent instead.
    if (this.#found.some((other) => placeOf(other) === placeOf(place))) return [];
    const { username, password } = this.#basic;
    const isKnown = ![username, password].some((text) => text !== "" && isUnknown(text));
    const value = isKnown ? `Basic ${Buffer.from(`${username}:${password}`, "utf8").toString("base64")}` : "";
    return [
      {
        ...place,
        name: this.#freeName("authorization", place),
        value,
        holds: "the word Basic, a space, and user:password in base64",
      },
    ];
  }

  #named(part: string): string {
    return ownCredentialName(this.#origin, part);
  }
}

function placeOf({ location, target }: Pick<Found, "location" | "target">): string {
  return placeOfSlot({ location, name: target });
}

function isBearer({ target, location, value }: Found): boolean {
  return location === "header" && target.toLowerCase() === "authorization" && /^bearer /i.test(value);
}

function readBasic(value: string): { readonly username: string; readonly password: string } | undefined {
  const encoded = /^basic +([A-Za-z0-9+/=_-]+)$/i.exec(value)?.[1];
  if (encoded === undefined) return undefined;
  const text = Buffer.from(encoded, "base64").toString("utf8");
  const colon = text.indexOf(":");
  return colon < 0 ? undefined : { username: text.slice(0, colon), password: text.slice(colon + 1) };
}
