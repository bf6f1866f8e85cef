/** What the corpus tells of: each kind of thing has names, facts, and questions about them in other words. */
export type Draw = (below: number) => number;

export interface Told {
  readonly text: string;
  /** Questions that say its name. */
  readonly named: readonly string[];
  /** Questions that do not. */
  readonly described: readonly string[];
}

export interface Kind {
  readonly id: string;
  readonly name: (draw: Draw) => string;
  readonly tell: (name: string, draw: Draw) => Told;
}

function pick(draw: Draw, list: readonly string[]): string {
  return list[draw(list.length)] ?? "";
}

const starts = [
  "Hal",
  "Ter",
  "Bran",
  "Os",
  "Vel",
  "Kar",
  "Mir",
  "Dun",
  "Ash",
  "Lor",
  "Pel",
  "Quin",
  "Rav",
  "Sel",
  "Tor",
  "Ulm",
  "Wen",
  "Yar",
  "Zel",
  "Cor",
];
const middles = ["a", "e", "i", "o", "ba", "de", "la", "mo", "ri", "su", "ve", "na", "ti", "ko", "re"];
const ends = [
  "vorn",
  "skel",
  "wick",
  "mere",
  "dale",
  "ford",
  "holm",
  "stad",
  "lund",
  "brook",
  "gard",
  "quay",
  "burn",
  "fell",
  "moor",
  "haven",
  "ridge",
  "thorpe",
];
const word = (draw: Draw): string => pick(draw, starts) + pick(draw, middles) + pick(draw, ends);
const people = [
  "Anna Weld",
  "Tomas Brik",
  "Ilse Harrow",
  "Pavel Stone",
  "Maud Keller",
  "Jonas Finch",
  "Greta Lowe",
  "Emil Sander",
  "Nora Quist",
  "Viktor Ames",
  "Clara Voss",
  "Hugo Lind",
  "Edith Marsh",
  "Oskar Reed",
  "Lena Firth",
  "Arne Dahl",
];
const goods = [
  "barley",
  "tin",
  "wool",
  "salt",
  "glass",
  "paper",
  "copper wire",
  "clocks",
  "dried fish",
  "linen",
  "bricks",
  "cheese",
  "lamp oil",
  "porcelain",
  "rope",
  "honey",
];
const directions = ["north", "south", "east", "west", "north-east", "south-west"];
const colours = ["grey", "amber", "dark green", "white", "russet", "pale blue", "black", "ochre"];
const year = (draw: Draw): number => 1702 + draw(310);

export const kindsOfEnglish: readonly Kind[] = [
  {
    id: "reservoir",
    name: (draw) => `${word(draw)} Reservoir`,
    tell: (name, draw) => {
      const [town, built, homes, depth, side] = [
        word(draw),
        year(draw),
        3 + draw(90),
        11 + draw(80),
        pick(draw, directions),
      ];
      return {
        text: `${name} lies ${4 + draw(60)} km ${side} of ${town}. It was filled in ${built} after the valley had been cleared, and is ${depth} metres deep at the dam. Today it supplies drinking water to ${homes},000 households, and in dry summers the old ${pick(draw, goods)} road shows at its edge.`,
        named: [
          `How many households get their drinking water from ${name}?`,
          `When was ${name} filled?`,
          `How deep is the water at the dam of ${name}?`,
        ],
        described: [
          `Which lake made by a dam ${side} of ${town} was filled in ${built}?`,
          `Drinking water for ${homes},000 households near ${town}, ${depth} metres deep`,
        ],
      };
    },
  },
  {
    id: "mill",
    name: (draw) => `${word(draw)} Mill`,
    tell: (name, draw) => {
      const [owner, made, started, hands] = [pick(draw, people), pick(draw, goods), year(draw), 20 + draw(900)];
      return {
        text: `${name} was founded by ${owner} in ${started} and made ${made} for almost a century. At its height ${hands} people worked there in two shifts. A fire destroyed the drying loft in ${started + 30 + draw(40)}; the ${pick(draw, colours)} chimney is all that is left of that part.`,
        named: [
          `Who founded ${name}?`,
          `What did the workers of ${name} produce?`,
          `How many people were employed at ${name} at its height?`,
        ],
        described: [
          `Factory for ${made} founded by ${owner} in ${started}`,
          `Where did ${hands} people make ${made} in two shifts?`,
        ],
      };
    },
  },
  {
    id: "railway",
    name: (draw) => `${word(draw)} Line`,
    tell: (name, draw) => {
      const [from, to, opened, stops, gauge] = [word(draw), word(draw), year(draw), 4 + draw(30), 600 + 5 * draw(200)];
      return {
        text: `The ${name} runs from ${from} to ${to} and opened in ${opened}. Its gauge of ${gauge} mm is used nowhere else, so carriages cannot leave it. Trains call at ${stops} stations; the tunnel below ${word(draw)} took ${2 + draw(9)} years to dig.`,
        named: [
          `Between which towns do trains of the ${name} run?`,
          `What is the track gauge of the ${name}?`,
          `At how many stations does a train on the ${name} stop?`,
        ],
        described: [
          `Railway between ${from} and ${to} opened ${opened}`,
          `Which railway has a gauge of ${gauge} mm and ${stops} stations?`,
        ],
      };
    },
  },
  {
    id: "bird",
    name: (draw) => `${pick(draw, colours)} ${word(draw).toLowerCase()}-finch`,
    tell: (name, draw) => {
      const [place, eggs, days, food] = [
        word(draw),
        2 + draw(7),
        11 + draw(18),
        pick(draw, ["beetles", "thistle seed", "snails", "ants", "rowan berries", "moths", "pine seed", "worms"]),
      ];
      return {
        text: `The ${name} breeds in the reed beds around ${place}. A clutch has ${eggs} eggs, which both parents sit on for ${days} days. It lives on ${food} and gathers in flocks of ${20 + draw(400)} before it leaves in ${pick(draw, ["August", "September", "October"])}.`,
        named: [
          `How many eggs does the ${name} lay?`,
          `What does the ${name} eat?`,
          `How long do both parents of the ${name} brood?`,
        ],
        described: [
          `Bird of the reeds near ${place} that lives on ${food}`,
          `${eggs} eggs, ${days} days of sitting, reed beds of ${place}`,
        ],
      };
    },
  },
  {
    id: "rule",
    name: (draw) => `Directive ${100 + draw(900)}/${1950 + draw(70)} on ${pick(draw, goods)}`,
    tell: (name, draw) => {
      const [fine, office, days] = [100 * (1 + draw(90)), word(draw), 5 + draw(60)];
      return {
        text: `${name} obliges dealers to keep samples for ${days} days and to label every crate with its origin. Whoever does not pays ${fine} crowns. The office in ${office} may grant an exception to traders with fewer than ${3 + draw(12)} staff, if they apply before ${pick(draw, ["1 March", "15 May", "30 June", "1 October"])}.`,
        named: [
          `How long must samples be kept under ${name}?`,
          `What is the penalty of ${name}?`,
          `Which office grants exceptions to ${name}?`,
        ],
        described: [
          `Fine of ${fine} crowns for crates without origin, exceptions from ${office}`,
          `keep samples for ${days} days, exceptions granted in ${office}`,
        ],
      };
    },
  },
  {
    id: "device",
    name: (draw) => `${word(draw)} ${pick(draw, ["MX", "TR", "LP", "QS", "VN"])}-${100 + draw(899)}`,
    tell: (name, draw) => {
      const [watts, weight, code, hours] = [
        5 * (4 + draw(300)),
        (4 + draw(400)) / 10,
        `E${100 + draw(899)}`,
        100 * (2 + draw(90)),
      ];
      return {
        text: `The ${name} draws ${watts} W and weighs ${weight} kg. If the display shows ${code}, the inlet filter is blocked: switch it off, wait ${2 + draw(20)} minutes and rinse the filter in cold water. The pump bearings are to be greased every ${hours} hours of use.`,
        named: [
          `What does error ${code} mean on the ${name}?`,
          `How often must the bearings of the ${name} be greased?`,
          `How heavy is the ${name}?`,
        ],
        described: [
          `machine with ${watts} W and ${weight} kg shows ${code}`,
          `grease pump bearings every ${hours} hours, error ${code} blocked filter`,
        ],
      };
    },
  },
  {
    id: "painter",
    name: (draw) =>
      `${pick(draw, ["Agnes", "Bertil", "Cora", "Dietmar", "Elin", "Fritz", "Gunnar", "Hedda"])} ${word(draw)}`,
    tell: (name, draw) => {
      const [born, town, teacher, sold] = [year(draw), word(draw), pick(draw, people), 1 + draw(40)];
      return {
        text: `${name} was born in ${town} in ${born} and learned to draw from ${teacher}. Only ${sold} pictures were sold in the painter's lifetime, most of them harbour scenes in ${pick(draw, colours)} tones. The museum of ${word(draw)} keeps the sketchbooks.`,
        named: [
          `Where was ${name} born?`,
          `From whom did ${name} learn to draw?`,
          `How many pictures did ${name} sell while alive?`,
        ],
        described: [
          `Painter from ${town}, born ${born}, pupil of ${teacher}`,
          `pupil of ${teacher} who sold ${sold} pictures`,
        ],
      };
    },
  },
  {
    id: "dish",
    name: (draw) => `${word(draw)} ${pick(draw, ["stew", "pie", "dumplings", "broth", "pudding"])}`,
    tell: (name, draw) => {
      const [first, second, minutes, grams] = [
        pick(draw, ["turnips", "barley", "smoked eel", "leeks", "plums", "rye bread", "kid", "mushrooms"]),
        pick(draw, ["caraway", "juniper", "dill", "vinegar", "honey", "mustard"]),
        10 * (2 + draw(30)),
        50 * (2 + draw(20)),
      ];
      return {
        text: `For ${name} take ${grams} g of ${first} and cook it with ${second} for ${minutes} minutes on a low fire. It is eaten on the second day of ${pick(draw, ["harvest", "the fair", "the new year", "spring"])} in ${word(draw)}, always with ${pick(draw, ["flat bread", "sour milk", "pickled beets"])}, and never salted at the table.`,
        named: [
          `How long does ${name} cook?`,
          `What is ${name} seasoned with?`,
          `How much ${first} goes into ${name}?`,
        ],
        described: [
          `dish of ${first} with ${second}, ${minutes} minutes on a low fire`,
          `${grams} g of ${first} cooked with ${second} for ${minutes} minutes`,
        ],
      };
    },
  },
  {
    id: "storm",
    name: (draw) => `${pick(draw, ["January", "March", "August", "November"])} flood of ${1650 + draw(360)}`,
    tell: (name, draw) => {
      const [river, height, houses, bridge] = [word(draw), 300 + draw(700), 12 + draw(900), word(draw)];
      return {
        text: `In the ${name} the river ${river} rose ${height} cm within two nights. It carried off ${houses} houses and the bridge at ${bridge}, which was rebuilt in stone only ${3 + draw(30)} years later. ${pick(draw, people)} wrote the account from which we know the hours of the breach.`,
        named: [
          `How high did the water rise in the ${name}?`,
          `Which bridge was lost in the ${name}?`,
          `How many houses did the ${name} destroy?`,
        ],
        described: [
          `Flood of the ${river} that took the bridge at ${bridge}`,
          `${houses} houses carried off when the ${river} rose`,
        ],
      };
    },
  },
  {
    id: "club",
    name: (draw) => `${word(draw)} ${pick(draw, ["Rovers", "Rowing Club", "Chess Circle", "Skaters"])}`,
    tell: (name, draw) => {
      const [founded, members, captain, ground] = [year(draw), 20 + draw(2_000), pick(draw, people), word(draw)];
      return {
        text: `${name} were founded in ${founded} by apprentices of the ${pick(draw, goods)} trade and have ${members} members. They meet at ${ground} on ${pick(draw, ["Mondays", "Tuesdays", "Thursdays", "Sundays"])}. Under ${captain} they won the northern cup ${2 + draw(9)} times in a row.`,
        named: [
          `When were ${name} founded?`,
          `Under which captain did ${name} win the northern cup?`,
          `How many members do ${name} have?`,
        ],
        described: [
          `club at ${ground} with captain ${captain}`,
          `${members} members, founded in ${founded}, meet at ${ground}`,
        ],
      };
    },
  },
];

const 首 = [
  "青",
  "白",
  "石",
  "云",
  "龙",
  "金",
  "柳",
  "梅",
  "沙",
  "松",
  "长",
  "望",
  "安",
  "永",
  "南",
  "清",
  "玉",
  "双",
  "桃",
  "鹤",
];
const 中 = ["溪", "桥", "岭", "河", "阳", "湖", "泉", "竹", "江", "坪", "湾", "林", "田", "峰", "沟"];
const 尾 = ["镇", "县", "村", "乡", "寨", "堡", "屯", "渡", "埠", "集", "店", "口"];
const 地 = (draw: Draw): string => pick(draw, 首) + pick(draw, 中) + pick(draw, 尾);
const 姓 = ["赵", "钱", "孙", "李", "周", "吴", "郑", "王", "冯", "陈", "褚", "卫", "蒋", "沈", "韩", "杨"];
const 名 = [
  "文远",
  "思源",
  "景行",
  "若水",
  "明德",
  "怀瑾",
  "子安",
  "长卿",
  "秋实",
  "一鸣",
  "望舒",
  "季青",
  "知微",
  "伯言",
];
const 人 = (draw: Draw): string => pick(draw, 姓) + pick(draw, 名);
const 货 = [
  "茶叶",
  "生丝",
  "瓷器",
  "桐油",
  "纸张",
  "铜器",
  "药材",
  "盐",
  "棉布",
  "竹器",
  "木炭",
  "蜂蜜",
  "漆器",
  "烟叶",
];
const 色 = ["青灰", "赭红", "月白", "墨绿", "鹅黄", "藏蓝", "玄黑", "藕荷"];
const 年 = (draw: Draw): number => 1702 + draw(310);

export const kindsOfChinese: readonly Kind[] = [
  {
    id: "reservoir",
    name: (draw) => `${地(draw)}水库`,
    tell: (name, draw) => {
      const [town, built, homes, depth] = [地(draw), 年(draw), 3 + draw(90), 11 + draw(80)];
      return {
        text: `${name}位于${town}以${pick(draw, ["北", "南", "东", "西"])}${4 + draw(60)}公里处，${built}年建成蓄水，坝前最深处达${depth}米。如今它为${homes}万居民供应饮用水，遇到旱年，水下旧时运${pick(draw, 货)}的古道会露出水面。`,
        named: [`${name}给多少居民供水？`, `${name}是哪一年蓄水的？`, `${name}坝前有多深？`],
        described: [`${town}附近${built}年建成的水库`, `为${homes}万人供水、最深${depth}米的水库在哪里`],
      };
    },
  },
  {
    id: "workshop",
    name: (draw) =>
      `${pick(draw, 首)}${pick(draw, ["和", "泰", "盛", "丰", "裕", "源", "昌", "隆"])}${pick(draw, ["号", "坊", "记", "行", "堂"])}${pick(draw, 货)}`,
    tell: (name, draw) => {
      const [owner, started, hands, town] = [人(draw), 年(draw), 20 + draw(900), 地(draw)];
      return {
        text: `${name}由${owner}于${started}年创办，铺面设在${town}的老街上，最盛时雇有伙计${hands}人，分早晚两班做工。后来一场大火烧毁了晾晒的阁楼，只剩下一根${pick(draw, 色)}色的烟囱。`,
        named: [`${name}的创办人是谁？`, `${name}最多雇过多少伙计？`, `${name}的铺面设在什么地方？`],
        described: [`${owner}${started}年在${town}开的铺子`, `${town}老街上有${hands}名伙计的作坊`],
      };
    },
  },
  {
    id: "railway",
    name: (draw) => `${pick(draw, 首)}${pick(draw, 中)}${pick(draw, 首)}${pick(draw, 中)}铁路`,
    tell: (name, draw) => {
      const [from, to, opened, gauge] = [地(draw), 地(draw), 年(draw), 600 + 5 * draw(200)];
      return {
        text: `${name}从${from}通到${to}，${opened}年通车。它采用${gauge}毫米的轨距，与别处都不相同，车厢不能出线。全线设${4 + draw(30)}个车站，穿过${地(draw)}的隧道挖了${2 + draw(9)}年才打通。`,
        named: [`${name}的起点和终点在哪里？`, `${name}的轨距是多少？`, `${name}什么时候通车？`],
        described: [`${from}到${to}的火车线路`, `轨距${gauge}毫米、${opened}年通车的铁路`],
      };
    },
  },
  {
    id: "rule",
    name: (draw) => `《${pick(draw, 首)}${pick(draw, 中)}市${pick(draw, 货)}管理办法》第${1 + draw(60)}条`,
    tell: (name, draw) => {
      const [fine, days, office] = [100 * (1 + draw(90)), 5 + draw(60), 地(draw)];
      return {
        text: `${name}规定：经营者应当保留样品${days}日，并在每件包装上标明产地；违反规定的，处以${fine}元罚款。从业人员不足${3 + draw(12)}人的商户，可以在每年${pick(draw, ["三月一日", "五月十五日", "六月三十日", "十月一日"])}前向${office}办事处申请豁免。`,
        named: [`按照${name}，样品要保留多少天？`, `违反${name}罚多少钱？`, `${name}的豁免向哪里申请？`],
        described: [`向${office}办事处申请豁免的规定`, `样品保留${days}日，罚款${fine}元`],
      };
    },
  },
  {
    id: "device",
    name: (draw) =>
      `${pick(draw, 首)}${pick(draw, 中)}牌${pick(draw, ["MX", "TR", "LP", "QS"])}-${100 + draw(899)}型水泵`,
    tell: (name, draw) => {
      const [watts, weight, code, hours] = [
        5 * (4 + draw(300)),
        (4 + draw(400)) / 10,
        `E${100 + draw(899)}`,
        100 * (2 + draw(90)),
      ];
      return {
        text: `${name}功率${watts}瓦，重${weight}公斤。屏幕显示${code}时，表示进水滤网堵塞：请先断电，等待${2 + draw(20)}分钟，再用冷水冲洗滤网。轴承每运转${hours}小时应加注一次润滑脂。`,
        named: [`${name}显示${code}是什么故障？`, `${name}多久加一次润滑脂？`, `${name}有多重？`],
        described: [`功率${watts}瓦、重${weight}公斤的水泵`, `${code}滤网堵塞，每${hours}小时加润滑脂`],
      };
    },
  },
  {
    id: "painter",
    name: (draw) => `${人(draw)}（号${pick(draw, 首)}${pick(draw, 中)}居士）`,
    tell: (name, draw) => {
      const [born, town, teacher, sold] = [年(draw), 地(draw), 人(draw), 1 + draw(40)];
      return {
        text: `画家${name}${born}年生于${town}，少年时随${teacher}学画。生前只卖出${sold}幅作品，多为${pick(draw, 色)}色调的渡口小景；写生册现藏于${地(draw)}博物馆。`,
        named: [`${name}是哪里人？`, `${name}的老师是谁？`, `${name}生前卖出几幅画？`],
        described: [`${born}年出生在${town}的画家`, `跟${teacher}学画、生前卖出${sold}幅的画家`],
      };
    },
  },
  {
    id: "dish",
    name: (draw) =>
      `${pick(draw, 首)}${pick(draw, 中)}${pick(draw, ["煨", "蒸", "炖", "焖", "煎"])}${pick(draw, ["豆腐", "鲤鱼", "笋干", "芋头", "羊肉", "莲藕", "排骨", "香菇"])}`,
    tell: (name, draw) => {
      const [spice, minutes, grams] = [
        pick(draw, ["花椒", "陈皮", "紫苏", "豆豉", "米醋", "桂花"]),
        10 * (2 + draw(30)),
        50 * (2 + draw(20)),
      ];
      const feast = pick(draw, ["立春", "端午", "中秋", "冬至", "开秧门"]);
      const town = 地(draw);
      return {
        text: `做${name}，主料取${grams}克，加${spice}用文火煮${minutes}分钟。${town}人在${feast}的第二天吃它，总要配上${pick(draw, ["糙米饭", "酸菜", "荞麦饼"])}，上桌之后不再放盐。`,
        named: [`${name}要煮多久？`, `${name}用什么香料？`, `${name}的主料要多少克？`],
        described: [`${town}在${feast}第二天吃的菜`, `加${spice}文火煮${minutes}分钟、主料${grams}克`],
      };
    },
  },
  {
    id: "flood",
    name: (draw) =>
      `${1650 + draw(360)}年${pick(draw, ["春", "夏", "秋"])}${pick(draw, 首)}${pick(draw, ["江", "河", "水"])}大水`,
    tell: (name, draw) => {
      const [height, houses, bridge, writer] = [
        300 + draw(700),
        12 + draw(900),
        `${pick(draw, 首)}${pick(draw, 中)}桥`,
        人(draw),
      ];
      return {
        text: `${name}，水位两夜之间涨了${height}厘米，冲走民房${houses}间，${bridge}也被冲垮，过了${3 + draw(30)}年才改建成石桥。决口的时辰见于${writer}的日记。`,
        named: [`${name}冲毁了多少房屋？`, `${name}时水涨了多高？`, `${name}冲垮了哪座桥？`],
        described: [`冲垮${bridge}、冲走${houses}间民房的洪水`, `${writer}日记里记载的决口`],
      };
    },
  },
  {
    id: "school",
    name: (draw) => `${地(draw)}${pick(draw, ["第一", "第二", "明德", "育英", "崇文"])}学堂`,
    tell: (name, draw) => {
      const [founded, head, pupils, subject] = [
        年(draw),
        人(draw),
        20 + draw(2_000),
        pick(draw, ["算学", "农桑", "航海", "测绘", "律学", "医理"]),
      ];
      return {
        text: `${name}创办于${founded}年，首任堂长${head}变卖祖产购置了课桌。鼎盛时有学生${pupils}名，以${subject}一科最为知名；校舍的${pick(draw, 色)}色门楼保存至今。`,
        named: [`${name}的首任堂长是谁？`, `${name}最多有多少学生？`, `${name}以哪一科闻名？`],
        described: [`${head}当堂长的学校`, `${founded}年创办、以${subject}知名、有${pupils}名学生`],
      };
    },
  },
  {
    id: "plant",
    name: (draw) => `${pick(draw, 首)}${pick(draw, 中)}${pick(draw, ["草", "藤", "兰", "杜鹃", "槭", "蕨"])}`,
    tell: (name, draw) => {
      const [place, height, month, use] = [
        地(draw),
        10 + draw(900),
        1 + draw(12),
        pick(draw, ["止咳", "染布", "造纸", "驱蚊", "酿酒", "编筐"]),
      ];
      return {
        text: `${name}只生长在${place}海拔${100 * (2 + draw(40))}米以上的阴坡，高${height}厘米左右，${month}月开${pick(draw, 色)}色小花。当地人采它来${use}，晒干后可存放${2 + draw(8)}年。`,
        named: [`${name}有什么用处？`, `${name}几月开花？`, `${name}长在什么地方？`],
        described: [`${place}阴坡上用来${use}的植物`, `高${height}厘米、${month}月开花、可以${use}`],
      };
    },
  },
];
