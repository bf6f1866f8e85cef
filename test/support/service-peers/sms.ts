/** SMS vendors on the wire, with signatures checked; there is no account of a real one. */
import { smsVendors, type SmsVendorName } from "@toolyard/core/sms/vendors";
import { startVendorStub } from "../sms-vendors.ts";
import type { ServicePeer } from "./peer.ts";

function ofVendor(vendor: SmsVendorName): ServicePeer {
  return {
    scheme: "sms",
    name: smsVendors[vendor].title,
    async start() {
      const stub = await startVendorStub(vendor);
      const count = (): number => stub.sent.length;
      return {
        config: {
          vendor,
          account: stub.account,
          sign_name: "示例签名",
          country_code: "86",
          plain_template: { template: stub.template, param: "code" },
          profiles: { verification_code: {} },
        },
        operations: [
          {
            tool: "verification_code",
            arguments: { to: "13800138000", template: stub.template, params: { code: "012345" } },
            gives: /"status":"sent"/,
            count,
          },
          {
            tool: "verification_code",
            what: "verification_code, as a text",
            arguments: { to: "13800138000", content: "欢迎注册" },
            gives: /"status":"sent"/,
            count,
          },
        ],
        close: () => stub.close(),
      };
    },
  };
}

export const smsPeers: readonly ServicePeer[] = (Object.keys(smsVendors) as readonly SmsVendorName[]).map(ofVendor);
