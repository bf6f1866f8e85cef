import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeGroupChatRepo } from "./group-chats-repo.ts";

describeGroupChatRepo("file", twoInstancesOfFile);
describeGroupChatRepo("server", twoInstancesOfServer);
