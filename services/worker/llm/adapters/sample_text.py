"""A text of our own that models read when their accuracy is measured: prose, a dialogue, numbers, code."""

SAMPLE_TEXT = """\
The harbour was quiet before the market opened. Two fishermen mended a net on the wall, and a dog watched the gulls as
if it had been paid to do so. When the first lorry came down the hill, everybody knew that the day had begun: the baker
unlocked her door, the ferry sounded its horn, and somewhere above the roofs a radio told the news to nobody.

"You are late again," said Marta. "I am not," he answered, "the clock is early. It was repaired last week by the same
man who repaired my bicycle, and since then I have walked." She laughed, took the basket from his arm and counted what
was in it: three loaves of bread, a bag of onions, twelve eggs, of which one was broken, and half a pound of butter.

A short history of the bridge may help the reader. It was built between 1871 and 1874 of granite from the quarry in the
north; it has five arches, the widest of which spans 42 metres; and it has been closed only twice, in 1918 after a
flood, and in 1976 for repairs that took nine months and cost 3.4 million. Engineers still visit it, because the
mortar in its joints was mixed by a recipe that has been lost.

To compute the mean of a list in Python, add its numbers and divide by how many there are:

def mean(numbers):
    if not numbers:
        raise ValueError("there is no mean of nothing")
    return sum(numbers) / len(numbers)

Water boils at 100 degrees Celsius at sea level, and at about 93 degrees on a mountain of 2,000 metres, since the air
is thinner there. Cooks who move to the mountains learn this soon: beans take longer, and bread rises faster than the
book says. What they do about it is simple. They wait a little longer for the one, and a little less for the other.

In the evening the boats returned. The lights along the quay were lit one after another, the nets were hung up to dry,
and the last question of the day was, as always, whether it would rain tomorrow.
"""
