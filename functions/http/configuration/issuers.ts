/** Issuers of tokens that the tenant trusts: who gets in without a key, and with which rights. */
import type { Kind } from "@toolyard/core/configuration/kind";
import { toPlain } from "@toolyard/core/configuration/compare";
import { readEveryPage } from "@toolyard/core/every-page";
import * as z from "zod";
import { toIssuerFields } from "../routes/issuers.ts";
import { ask, idIn, joinedName, liveAt, parseBody, textIn, type RouteOf } from "./part.ts";

export const issuers = (route: RouteOf<"createIssuer" | "updateIssuer" | "deleteIssuer">): Kind => ({
  identify: (item) => joinedName([textIn(item, "issuer"), textIn(item, "audience")], " "),
  async read({ core, context }) {
    const all = await readEveryPage((page) => core.repos.issuers.list(context.tenant, page));
    return all.map((issuer) => liveAt(issuer.id, toIssuerFields(issuer)));
  },
  parse(_work, item) {
    const { default_scopes: scopes, ...parsed } = parseBody(route("createIssuer"), item);
    return toPlain({ ...parsed, default_scopes: [...new Set(z.array(z.string()).parse(scopes))] });
  },
  async write(work, { item, before, changed }) {
    if (before === undefined) return idIn(await ask(work, route("createIssuer"), { body: item }));
    await ask(work, route("updateIssuer"), { params: { id: before.id }, body: changed });
    return before.id;
  },
  async remove(work, { id }) {
    await ask(work, route("deleteIssuer"), { params: { id } });
  },
});
